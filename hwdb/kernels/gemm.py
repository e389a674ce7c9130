"""GEMM: the kernel the library will choose, its tiles and waves on the real SM count, bytes by level, then a residual.

time = (launch + work) x residual, where work joins two walls smoothly:
compute = waves x (steps x cycles per step + prologue and epilogue) / clock, memory = bytes / bandwidth.
The constants below only set the scale that the residual starts from; it is fitted to the calibration's points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels import gemm_choice, mlp, regression
from tilewise.hwdb.kernels.gemm_choice import OUTPUT, Choice, ChoiceModel, Problem
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Layout

LAUNCH_S = 2.2e-6  # the smallest graph node
STEP_BYTES = 128  # one pipeline stage along k: a 128-byte swizzle row
PROLOGUE_CYCLES = 1100.0  # fill the pipeline, drain the accumulators: residual corrects it by tile
SHARED_BYTES_PER_CLOCK = 64.0  # per SM from L2 into shared memory
BANDWIDTH = 0.9  # of the datasheet's
SPLIT_S = 1.5e-6  # the reduction kernel of split-K
OLD_TENSOR_RATE = {23: 0.6, 24: 0.35, 21: 0.6, 43: 0.6}  # cuBLASLt's sm80 and sm75 kernels on Hopper, of its peak
SMOOTH = 6.0  # exponent with which two walls join
CHUNK = 16384  # rows at a time: the working set stays in L2


@dataclass(frozen=True, slots=True)
class Physics:
    """Parts of the base time in seconds, and what it stands on; arrays of shape (rows,)."""

    base_s: Floats
    compute_s: Floats
    memory_s: Floats
    tiles: NDArray[np.float32]
    waves: NDArray[np.float32]
    padding: NDArray[np.float32]
    choice: Choice


def physics(p: Problem, choice: Choice, sku: Sku) -> Physics:
    """Walls of the chosen kernel at the boost clock."""
    clock, sms = sku.clock_boost_hz, sku.sm_count
    over_n, over_m = np.ceil(p.n / choice.tile_n), np.ceil(p.m / choice.tile_m)
    tiles = over_n * over_m * p.groups
    pieces = tiles * choice.split
    waves = np.ceil(pieces / sms)
    steps = np.ceil(p.k * p.element / STEP_BYTES)
    per_step = _cycles_per_step(p, choice, sku)
    compute = waves * (np.ceil(steps / choice.split) * per_step + PROLOGUE_CYCLES) / clock
    inputs = (p.m * p.k + p.n * p.k) * p.element
    outputs = p.m * p.n * OUTPUT[p.precision]
    memory = p.groups * (inputs + outputs) / (BANDWIDTH * sku.hbm_bytes_per_s)
    joined = (compute**SMOOTH + memory**SMOOTH) ** (1 / SMOOTH)
    partials = np.where(choice.split > 1, SPLIT_S + choice.split * p.m * p.n * 8 / (3 * sku.hbm_bytes_per_s), 0)
    padding = over_n * choice.tile_n * over_m * choice.tile_m / (p.n * p.m)
    base = np.asarray(LAUNCH_S + joined + partials, np.float64)
    return Physics(base, np.asarray(compute, float), np.asarray(memory, float), tiles, waves, padding, choice)


def _cycles_per_step(p: Problem, choice: Choice, sku: Sku) -> NDArray[np.float32]:
    rate = _flops_per_clock(sku)[p.precision]
    for algorithm, share in OLD_TENSOR_RATE.items():
        rate = np.where(choice.algorithm == algorithm, rate * np.float32(share), rate)
    matrix = 2 * choice.tile_n * choice.tile_m * (STEP_BYTES / p.element) / rate
    operands = (choice.tile_n + choice.tile_m) * np.float32(STEP_BYTES / SHARED_BYTES_PER_CLOCK)
    slower: NDArray[np.float32] = np.maximum(matrix, operands)
    return slower


def _flops_per_clock(sku: Sku) -> NDArray[np.float32]:
    keys = [FORMATS[precision].peak for precision in Precision]
    rates = [float(sku.flops_per_clock[key].value) if key in sku.flops_per_clock else np.nan for key in keys]
    return np.array(rates, np.float32)


def features(p: Problem, work: Physics, sms: int) -> NDArray[np.float32]:
    """What the residual may depend on; shape (rows, inputs)."""
    choice = work.choice
    pieces = work.tiles * choice.split
    steps = p.k * p.element / STEP_BYTES / choice.split
    share = np.asarray(work.compute_s / (work.compute_s + work.memory_s), np.float32)
    log = np.log2
    columns = [
        log(p.m), log(p.n), log(p.k), log(p.alignment), log(p.groups),
        log(choice.tile_m), log(choice.tile_n), log(choice.split), log(steps),
        log(np.clip(pieces / np.float32(sms), 1 / 132, 64)), log(work.waves), work.waves * np.float32(sms) / pieces,
        log(work.padding), share, log(np.asarray(work.base_s * 1e6, np.float32)),
        log(np.asarray(work.memory_s * 1e6, np.float32)), log(np.asarray(work.compute_s * 1e6, np.float32)),
        np.minimum(p.m / np.float32(64), 4), (choice.tile_n * choice.tile_m > 128 * 256 - 1).astype(np.float32),
    ]  # fmt: skip
    columns += [(p.layout == layout).astype(np.float32) for layout in (Layout.INPUT_GRADIENT, Layout.WEIGHT_GRADIENT)]
    columns += [(p.precision == code).astype(np.float32) for code in Precision if code != Precision.BF16]
    columns += [(choice.algorithm == code).astype(np.float32) for code in (66, 23, 24, 13, 11)]
    return np.asarray(np.stack(columns, 1), np.float32)


def rows_of(p: Problem, work: Physics, sms: int) -> regression.Rows:
    """Rows for the residual: place log2(m, n, k); group precision x layout x aligned; family precision x aligned."""
    aligned = (p.alignment >= 16).astype(np.int64)
    place = np.stack([np.log2(p.m), np.log2(p.n), np.log2(p.k)], 1).astype(np.float64)
    group = (p.precision * len(Layout) + p.layout) * 2 + aligned
    return regression.Rows(work.base_s, features(p, work, sms), place, group, p.precision * 2 + aligned)


@dataclass(frozen=True, slots=True)
class GemmModel:
    """Choice, residual and how each point answers to the clock."""

    choice: ChoiceModel
    residual: regression.Regression
    clock: Floats  # sensitivity of time to 1/clock: intercept, slope with the compute share

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> GemmModel:
        return cls(ChoiceModel.from_arrays(arrays), regression.Regression.from_arrays(arrays), arrays["clock"])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return self.choice.to_arrays() | self.residual.to_arrays() | {"clock": self.clock}


LAYOUTS = {"fwd": Layout.FORWARD, "dgrad": Layout.INPUT_GRADIENT, "wgrad": Layout.WEIGHT_GRADIENT}
PRECISIONS = {
    "bf16": Precision.BF16, "fp16": Precision.FP16, "tf32": Precision.TF32, "fp32": Precision.FP32,
    "fp8": Precision.FP8, "fp8row": Precision.FP8_ROW, "int8": Precision.INT8,
    "mxfp8": Precision.MXFP8, "nvfp4": Precision.NVFP4,
}  # fmt: skip


def fit_model(points: Mapping[str, Any], harvest: Mapping[str, NDArray[Any]], sku: Sku, epochs: int = 120) -> GemmModel:
    """Fit to points (columns kind, dtype, m, n, k, time_us; held-out ones left out) and the harvested choices."""
    choice = gemm_choice.fit(harvest, sku.sm_count)
    p = problem_of(points, np.ones(len(points["m"]), bool))
    rows, _ = _evaluate(p, choice, sku)
    plan = mlp.Training(hidden=(48, 48), epochs=epochs, batch=128, rate=4e-3, decay=3e-3)
    residual = regression.fit(rows, np.asarray(points["time_us"]) * 1e-6, plan)
    return GemmModel(choice, residual, np.array([0.0, 0.0]))


def problem_of(columns: Mapping[str, Any], use: NDArray[np.bool_]) -> Problem:
    """Rows of a measurement file."""
    layout = np.array([LAYOUTS[kind] for kind in columns["kind"]])[use]
    precision = np.array([PRECISIONS[dtype] for dtype in columns["dtype"]])[use]
    m, n, k = (np.asarray(columns[name], float)[use] for name in ("m", "n", "k"))
    return gemm_choice.problem(m, n, k, np.ones(len(m)), layout, precision)


def _evaluate(p: Problem, choice: ChoiceModel, sku: Sku) -> tuple[regression.Rows, Physics]:
    work = physics(p, choice.choose(p, sku.sm_count), sku)
    return rows_of(p, work, sku.sm_count), work
