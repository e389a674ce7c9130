"""GEMM: the kernel the library will choose, its tiles and waves on the real SM count, bytes by level, then a residual.

time = (launch + work) x residual, where work joins two walls smoothly:
compute = waves x (steps x cycles per step + prologue and epilogue) / clock, memory = bytes / bandwidth.
The constants below only set the scale that the residual starts from; it is fitted to the calibration's points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels import machines, roofline
from tilewise.hwdb.kernels.gemm import choice as gemm_choice
from tilewise.hwdb.kernels.gemm.choice import OUTPUT, Choice, ChoiceModel, Problem
from tilewise.hwdb.kernels.learning import extrapolation, mlp, regression
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Kind, Label, Layout, OperatorTable, mixed, present, table_from_columns
from tilewise.hwdb.times import State, Times, Trust, merge

if TYPE_CHECKING:
    from tilewise.hwdb.calibration import Calibration, Measurements

MEASURED = ("gemm", "batched_gemm")
SIBLINGS = True  # products take as long on other GPUs with the same SMs, but for what memory binds
# Octaves beyond which the fitted time is no better than the roofline's: on held-out points of the H100 and H200 the median error
# of the first is 17 % at 3 to 4 octaves (roofline 20 to 54 %), farther out 28 to 64 % (28 to 44 %, of both together 27 to 39 %)
FAR = 4.0
SETS = 24  # input sets that rotate at most: points with more are kept for comparison, not fitted
LAUNCH_S = 2.2e-6  # the smallest graph node
STEP_BYTES = 128  # one pipeline stage along k: a 128-byte swizzle row
PROLOGUE_CYCLES = 1100.0  # fill the pipeline, drain the accumulators: residual corrects it by tile
SHARED_BYTES_PER_CLOCK = 64.0  # per SM from L2 into shared memory
BANDWIDTH = 0.9  # of the datasheet's
SPLIT_S = 1.5e-6  # the reduction kernel of split-K
TENSOR_RATE = np.ones(256, np.float32)  # of Hopper's peak, by cuBLASLt's algorithm code: its sm80 and sm75 kernels
TENSOR_RATE[[23, 24, 21, 43]] = 0.6, 0.35, 0.6, 0.6
# With six nets, 150 passes and batches of 128, three times the work, points left out are as far off (H100: 4.79 for 4.75 %)
PLAN = mlp.Training(hidden=(128, 64), epochs=100, batch=256, rate=4e-3, decay=0.1)
LOCAL = mlp.Training(hidden=(24, 16), epochs=40, batch=128, rate=4e-3, decay=0.1)  # where errors are large
NVJET = 66  # cuBLASLt's algorithm code of its Hopper kernels
SMOOTH = 6.0  # exponent with which two walls join
# Formats of which only single products were measured (and outer products of a few KB), and rows of the tallest of those
SINGLE, TALL = np.array([code in (Precision.FP32, Precision.TF32) for code in Precision]), 16384.0
# Log half-widths of 90 % intervals that this adds: nine in ten of 164 measured bf16 batches of 128 rows and more take 19 % less to 19 %
# more than such an answer (bias +2 %), of 94 of fewer rows 17 % less to 80 % more (scripts/research/judge_batches.py, 2026-11-28)
STACKED_ROWS, STACKED, STACKED_FEW = 128, 0.2, 0.58
NO_FLAG = (Precision.BF16, Precision.FP8_BLOCK)  # the nets' inputs do not grow with formats that are added
ENCODED = np.array([code for code in Precision if code not in NO_FLAG])[:, None]
GRADIENTS = np.array([Layout.INPUT_GRADIENT, Layout.WEIGHT_GRADIENT])[:, None]
ALGORITHMS = np.array([66, 23, 24, 13, 11])[:, None]
INPUTS = 19 + len(GRADIENTS) + len(ENCODED) + len(ALGORITHMS) + 1


class Physics(Record):
    """Parts of the base time in seconds, and what it stands on; arrays of shape (rows,)."""

    base_s: Floats
    compute_s: Floats
    memory_s: Floats
    tiles: NDArray[np.float32]
    waves: NDArray[np.float32]
    padding: NDArray[np.float32]
    filled: NDArray[np.float32]
    aligned_s: Floats
    choice: Choice


def physics(p: Problem, choice: Choice, sku: Sku) -> Physics:
    """Walls of the chosen kernel at the boost clock."""
    clock, sms = sku.clock_boost_hz, sku.sm_count
    over_n, over_m = np.ceil(p.n / choice.tile_n), np.ceil(p.m / choice.tile_m)
    tiles = over_n * over_m * p.groups
    pieces = tiles * choice.split
    resident = blocks_per_sm(choice)
    waves = np.ceil(pieces / (sms * resident))
    steps = np.ceil(p.k * p.element / STEP_BYTES)
    per_step = _cycles_per_step(p, choice, sku) * np.minimum(resident, np.ceil(pieces / sms))
    compute = waves * (np.ceil(steps / choice.split) * per_step + PROLOGUE_CYCLES) / clock
    inputs = (p.m * p.k + p.n * p.k) * p.element
    outputs = p.m * p.n * OUTPUT[p.precision]
    memory = p.groups * (inputs + outputs) / (BANDWIDTH * sku.hbm_bytes_per_s)
    joined = (compute**SMOOTH + memory**SMOOTH) ** (1 / SMOOTH)
    partials = np.where(choice.split > 1, SPLIT_S + choice.split * p.m * p.n * 8 / (3 * sku.hbm_bytes_per_s), 0)
    padding = over_n * choice.tile_n * over_m * choice.tile_m / (p.n * p.m)
    base = np.asarray(LAUNCH_S + joined + partials, np.float64)
    filled = pieces / (waves * sms * resident)
    aligned = LAUNCH_S + np.maximum(
        2 * p.groups * p.m * p.n * p.k / (0.75 * sms * clock * _flops_per_clock(sku)[p.precision]), memory
    )
    return Physics(
        base, np.asarray(compute, float), np.asarray(memory, float), tiles, waves, padding, np.minimum(filled, 1),
        np.asarray(aligned, float), choice,
    )  # fmt: skip


def blocks_per_sm(choice: Choice) -> NDArray[np.float32]:
    """Blocks that share an SM: nvjet runs one persistent block, older kernels as many as their tiles let in."""
    older = np.minimum(np.maximum(np.floor(32768 / (choice.tile_n * choice.tile_m)), 1), 4)
    return np.where(choice.algorithm == NVJET, 1, older).astype(np.float32)


def _cycles_per_step(p: Problem, choice: Choice, sku: Sku) -> NDArray[np.float32]:
    rate = _flops_per_clock(sku)[p.precision] * TENSOR_RATE[choice.algorithm]
    matrix = 2 * choice.tile_n * choice.tile_m * (STEP_BYTES / p.element) / rate
    operands = (choice.tile_n + choice.tile_m) * np.float32(STEP_BYTES / SHARED_BYTES_PER_CLOCK)
    slower: NDArray[np.float32] = np.maximum(matrix, operands)
    return slower


@lru_cache(maxsize=64)
def _flops_per_clock(sku: Sku) -> NDArray[np.float32]:
    keys = [FORMATS[precision].peak for precision in Precision]
    rates = [float(sku.flops_per_clock[key].value) if key in sku.flops_per_clock else np.nan for key in keys]
    return np.array(rates, np.float32)


def features(p: Problem, work: Physics, sms: int) -> NDArray[np.float32]:
    """What the residual may depend on; shape (rows, inputs)."""
    choice = work.choice
    pieces = work.tiles * choice.split
    steps = p.k * p.element / STEP_BYTES / choice.split
    base, memory, compute = work.base_s * 1e6, work.memory_s * 1e6, work.compute_s * 1e6
    sizes = [
        p.m, p.n, p.k, p.alignment, p.groups, choice.tile_m, choice.tile_n, choice.split, steps,
        np.minimum(np.maximum(pieces / np.float32(sms), 1 / 132), 64), work.waves, work.padding, base, memory, compute,
    ]  # fmt: skip
    columns = np.empty((INPUTS, len(p.m)), np.float32)
    logs = np.log2(np.array(sizes, np.float32))
    columns[:11], columns[12], columns[14:17] = logs[:11], logs[11], logs[12:]
    columns[11] = np.minimum(work.waves * np.float32(sms) / pieces, 16)
    columns[13] = work.compute_s / (work.compute_s + work.memory_s)
    columns[17] = np.minimum(p.m / np.float32(64), 4)
    columns[18] = choice.tile_n * choice.tile_m > 128 * 256 - 1
    columns[19:21] = p.layout == GRADIENTS
    columns[21:-6] = p.precision == ENCODED
    columns[-6:-1] = choice.algorithm == ALGORITHMS
    columns[-1] = 0  # 1 where a fit takes rows of a sibling
    return columns.T


def rows_of(p: Problem, work: Physics, sms: int) -> regression.Rows:
    """Rows for the residual: place log2(m, n, k); group precision x layout x aligned; family precision x surety."""
    aligned = (p.alignment >= 16).astype(np.int64)
    # well aligned shapes are surer, and surest with a round number of tokens, as models are run: whole tiles
    tokens = np.where(p.layout == Layout.WEIGHT_GRADIENT.value, p.k, p.m).astype(np.int64)
    well = p.alignment >= 128
    round_tokens = (tokens % 64 == 0) | ((tokens < 64) & (tokens & (tokens - 1) == 0))
    surety = aligned + well + (well & round_tokens)
    place = np.log2(np.array([p.m, p.n, p.k])).T.astype(np.float64)
    group = (p.precision * len(Layout) + p.layout) * 2 + aligned
    return regression.Rows(work.base_s, features(p, work, sms), place, group, p.precision * 4 + surety)


class GemmModel(Record):
    """Kernel choice and residual."""

    choice: ChoiceModel
    residual: regression.Regression

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> GemmModel:
        return cls(ChoiceModel.from_arrays(arrays), regression.Regression.from_arrays(arrays))


LAYOUTS = {"fwd": Layout.FORWARD, "dgrad": Layout.INPUT_GRADIENT, "wgrad": Layout.WEIGHT_GRADIENT}
PRECISIONS = {
    "bf16": Precision.BF16, "fp16": Precision.FP16, "tf32": Precision.TF32, "fp32": Precision.FP32,
    "fp8": Precision.FP8, "fp8row": Precision.FP8_ROW, "int8": Precision.INT8,
    "mxfp8": Precision.MXFP8, "nvfp4": Precision.NVFP4,
}  # fmt: skip


def from_calibration(
    calibration: Calibration, sku: Sku, siblings: Sequence[tuple[Calibration, Sku]] = ()
) -> dict[str, NDArray[Any]]:
    """The model as arrays, fitted to the burst points that are not held out and to the library's own choices.

    siblings: measured calibrations of GPUs with the same SMs and library, whose products teach the residual as well
    """
    harvest = harvested(calibration.choices())
    model = gemm_choice.fit(harvest, sku.sm_count)
    p, time_s, spread = _points(calibration)
    rows, _ = evaluate(p, model, sku)
    differ = np.maximum(spread / 2, machines.between_cards(calibration, "gemm", time_s))
    residual = regression.fit(
        rows, time_s, PLAN, nets=4, local=LOCAL, machines=differ, folds=_folds(p), beside=_beside(siblings)
    )
    asked, _ = evaluate(gemm_choice.asked(harvest, every=3), model, sku)
    seen = np.concatenate([asked.features, *[rows.features] * 4])
    residual = regression.distilled(residual, seen, mlp.Training(hidden=(96, 32), epochs=60, batch=256, decay=0.0))
    return model.to_arrays() | residual.to_arrays()


def _points(calibration: Calibration) -> tuple[Problem, Floats, Floats]:
    """Problems that a fit may see, their times in seconds and spreads."""
    families = {name: calibration.measurements(name) for name in MEASURED if name in calibration.families()}
    columns, time_s = joined(families), measured_s(families)
    use = (columns["state"] == "burst") & ~columns["held"] & (columns["sets"] <= SETS) & np.isfinite(time_s)
    return problem_of({name: values[use] for name, values in columns.items()}), time_s[use], columns["spread"][use]


def _beside(siblings: Sequence[tuple[Calibration, Sku]]) -> regression.Beside | None:
    """Rows of siblings, each with the kernel that its own library would choose."""
    found = []
    for calibration, sku in siblings:
        p, time_s, _ = _points(calibration)
        rows, _ = evaluate(p, ChoiceModel.from_arrays(calibration.model("gemm")), sku)
        rows.features[:, -1] = 1
        found.append((rows.features, np.log(time_s / rows.base_s), _folds(p)))
    return regression.Beside(*(np.concatenate(parts) for parts in zip(*found, strict=True))) if found else None


def _folds(p: Problem) -> NDArray[np.int64]:
    """In which fold a shape is judged: on every GPU the same, so that no sibling gives it away."""
    columns = [np.asarray(size, np.int64) for size in (p.m, p.n, p.k, p.groups, p.layout, p.precision)]
    return (mixed(columns, len(p.m)) >> np.uint64(32)).astype(np.int64) % regression.FOLDS


def joined(families: Mapping[str, Measurements]) -> dict[str, NDArray[Any]]:
    """The rows of dense and batched GEMM under one set of columns."""
    parts = []
    for columns in families.values():
        count = len(columns["m"])
        plain = {"groups": np.ones(count, np.int64), "sets": np.zeros(count, np.int64), "spread": np.zeros(count)}
        names = ("kind", "dtype", "groups", "m", "n", "k", "sets", "state", "held", "spread")
        parts.append({name: np.asarray(columns[name] if name in columns else plain[name]) for name in names})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def table(measurements: Mapping[str, Measurements]) -> OperatorTable:
    """One row a measured point, each a shape of its own."""
    columns = joined(measurements)
    p = problem_of(columns)
    count = len(p.m)
    groups, output = p.groups.astype(float), OUTPUT[p.precision].astype(float)
    m, n, k = (np.asarray(columns[name], np.int64) for name in ("m", "n", "k"))
    flops = 2.0 * groups * m * n * k
    return table_from_columns(
        [Label(name="gemm", layer="", part="")], count, count,
        {
            "shape": np.arange(count), "kind": np.full(count, int(Kind.GEMM)), "precision": p.precision, "layout": p.layout,
            "m": m, "n": n, "k": k, "groups": groups, "output_bytes": output, "flops": flops, "executed_flops": flops.copy(),
            "bytes_read": groups * (m * k + n * k) * p.element, "bytes_written": groups * m * n * output,
        },
    )  # fmt: skip


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Burst times of GEMM rows; hwdb.kernels.power turns them into sustained ones.

    A precision and layout that was never measured is answered by the roofline; a shape beyond FAR octaves by both. A batch in a
    format of SINGLE has the tiles of one tall product.
    """
    batched = (table.groups > 1) & (table.k > 1) & SINGLE[table.precision]
    if not batched.any():
        return _predicted(table, model, sku, state)
    rows, others = np.flatnonzero(batched), np.flatnonzero(~batched)
    found = stacked(table.select(rows), lambda one: _predicted(one, model, sku, state), sku)
    return merge(len(table), [(others, _predicted(table.select(others), model, sku, state)), (rows, found)])


def stacked(table: OperatorTable, single: Callable[[OperatorTable], Times], sku: Sku) -> Times:
    """Batches by single products: the same tiles on top of each other, as many as TALL allows, and every group's own operands moved.

    An odd number on top of each other: rows begin on addresses as round as before.
    """
    many = np.clip(np.floor(TALL / np.maximum(table.m, 1)), 1, table.groups)
    many -= many % 2 == 0
    part = many / table.groups
    sizes = {name: getattr(table, name) * part for name in ("flops", "executed_flops", "bytes_read", "bytes_written")}
    tall = (table.m * many).astype(table.m.dtype)
    times = single(replace(table, m=tall, groups=np.ones_like(table.groups), **sizes))
    memory_s = (table.bytes_read + table.bytes_written) / (BANDWIDTH * sku.hbm_bytes_per_s)
    joined_s = ((times.time_s / part) ** SMOOTH + memory_s**SMOOTH) ** (1 / SMOOTH)
    unsure = np.where(table.m < STACKED_ROWS, STACKED_FEW, STACKED)
    return times.scaled(joined_s / times.time_s).less_sure(unsure)


def _predicted(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    times = _fitted(table, _built(model), sku)
    near = times.distance <= FAR
    if near.all():
        return times
    rest, far = np.flatnonzero(near), np.flatnonzero(~near)
    rough = roofline.predict(table.select(far), {}, sku, state)
    return merge(len(table), [(rest, times.select(rest)), (far, _both(times.select(far), rough))])


def _both(fitted: Times, rough: Times) -> Times:
    """Between two guesses that nothing tested, with an interval that holds both; the roofline alone where nothing was fitted."""
    alone = np.isnan(fitted.distance) | rough.refused
    both = replace(
        fitted, time_s=np.sqrt(fitted.time_s * rough.time_s), low_s=np.minimum(fitted.low_s, rough.low_s),
        high_s=np.maximum(fitted.high_s, rough.high_s),
    )  # fmt: skip
    rows, others = np.flatnonzero(alone), np.flatnonzero(~alone)
    return merge(len(alone), [(rows, rough.select(rows)), (others, both.select(others))])


def _fitted(table: OperatorTable, model: GemmModel, sku: Sku) -> Times:
    p = gemm_choice.problem(table.m, table.n, table.k, table.groups, table.layout, table.precision)
    rows, work = evaluate(p, model.choice, sku)
    answer = extrapolation.widened(model.residual.predict(rows), "gemm")
    time_s = answer.time_s
    scale = answer.time_s / work.base_s
    compute_s, memory_s = work.compute_s * scale, work.memory_s * scale
    overhead = LAUNCH_S * scale
    none = np.zeros(len(time_s))
    walls = np.array([compute_s, memory_s, none, overhead])
    used = np.array(present(work.choice.index), np.int64)  # of some three thousand
    full, bound = compute_s * work.filled, compute_s >= memory_s  # the share of the last wave that works
    return Times(
        time_s=time_s, low_s=answer.low_s, high_s=answer.high_s,
        compute_s=compute_s, memory_s=memory_s, special_s=none, launch_s=overhead,
        padding_s=np.where(bound, full * (1 - 1 / work.padding), 0.0),
        wave_s=np.where(bound, compute_s - full, 0.0),
        alignment_s=np.where(p.alignment < 16, np.maximum(time_s - work.aligned_s, 0.0), 0.0),
        wall=walls.argmax(0), trust=extrapolation.trust(answer.distance, "gemm", Trust.MEASURED),
        distance=answer.distance, kernel=used.searchsorted(work.choice.index), tiles=work.tiles.astype(float), waves=work.waves.astype(float),
        refusal=np.full(len(time_s), -1), kernel_names=tuple(map(model.choice.name, used.tolist())),
    )  # fmt: skip


measured_s = regression.replayed_s


@lru_cache(maxsize=8)
def _cached(key: int) -> list[Any]:
    return []


def _built(model: Mapping[str, Any]) -> GemmModel:
    """The model ready to use; a calibration hands out the same mapping each time, so it is built once."""
    slot = _cached(id(model))
    if not slot or slot[0] is not model:
        slot[:] = [model, GemmModel.from_arrays(model)]
    return slot[1]  # type: ignore[no-any-return]


def problem_of(columns: Mapping[str, Any]) -> Problem:
    """Rows of a measurement file."""
    layout = np.array([LAYOUTS[kind] for kind in columns["kind"]], np.int64)
    precision = np.array([PRECISIONS[dtype] for dtype in columns["dtype"]], np.int64)
    groups = columns["groups"] if "groups" in columns else np.ones(len(layout))
    return gemm_choice.problem(columns["m"], columns["n"], columns["k"], groups, layout, precision)


def evaluate(p: Problem, choice: ChoiceModel, sku: Sku) -> tuple[regression.Rows, Physics]:
    work = physics(p, choice.choose(p, sku.sm_count), sku)
    return rows_of(p, work, sku.sm_count), work


def harvested(answers: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.int64]]:
    """The library's answers (calibration/benchmarks/choices.py) with our codes; refused problems left out."""
    dtypes = ("bf16", "fp16", "tf32", "fp32", "fp8", "fp8row")  # the order in which the harvest numbers them
    columns = {name: np.asarray(column, np.int64) for name, column in answers.items()}
    columns = {name: column[answers["algorithm"] > 0] for name, column in columns.items()}
    columns["layout"] = columns["kind"]
    columns["precision"] = np.array([PRECISIONS[dtype] for dtype in dtypes])[columns["dtype"]]
    for name in ("tile_n", "tile_m"):  # vector kernels have no tile: the smallest stands for them
        columns[name] = np.maximum(columns[name], 8)
    return columns
