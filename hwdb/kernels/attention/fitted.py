"""Attention: which kernel runs, the physics of its grid, then a small residual fitted to the calibration.

Rows are bf16 or fp16 (the same kernels). Windows run on flash-attention, everything else on what the row asks for or
torch would take; a shape that its backend refuses has no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.kernels import machines, roofline
from tilewise.hwdb.kernels.attention import physics as attention_physics
from tilewise.hwdb.kernels.attention.choice import (
    CUDNN,
    FLASH,
    KERNELS,
    Grid,
    backend,
    facts,
    grid,
)
from tilewise.hwdb.kernels.attention.physics import Walls, Work
from tilewise.hwdb.kernels.learning import extrapolation, mlp, regression
from tilewise.hwdb.kernels.learning.opened import Opened
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import (
    VARIANT_CODES,
    VARIANTS,
    Floats,
    Ints,
    Kind,
    Label,
    OperatorTable,
    Phase,
    table_from_columns,
)
from tilewise.hwdb.times import State, Times, Trust, Wall, merge

MEASURED = ("attention",)
SHAPE = ("batch", "heads", "kv_heads", "head_dim", "head_dim_v", "seq_q", "seq_kv", "causal", "window")
WAVES_MAX = 16.0  # beyond as many waves time is linear
NARROWEST = 64  # head widths below were not measured
MEASURED_FORMATS = np.array(
    [code in (Precision.BF16, Precision.FP16) for code in Precision]
)  # timed in bf16, which fp16 matches
LIMIT = 0.3  # the residual's largest factor, log
PLAN = mlp.Training(hidden=(32,), epochs=150, batch=64, rate=4e-3, decay=10.0)


def table(measurements: Mapping[str, Measurements]) -> OperatorTable:
    """One row a point."""
    columns = measurements["attention"]
    length = len(columns["phase"])
    shape: dict[str, NDArray[Any]] = {name: columns[name].astype(np.int64) for name in SHAPE}
    shape["phase"] = np.array([Phase[name.upper()] for name in columns["phase"].tolist()], np.int64)
    shape["variant"] = np.array([VARIANT_CODES[name] for name in columns["backend"].tolist()], np.int64)
    shape["kind"] = np.full(length, int(Kind.ATTENTION))
    shape["precision"] = np.full(length, int(Precision.BF16))
    shape["shape"] = np.arange(length)
    return table_from_columns(
        [Label(name="attention", layer="", part="attention")], length, length, {**shape, **_work(shape)}
    )


def _work(shape: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """FLOPs and compulsory bytes of points, as server/operators counts them: two products, five backward."""
    queries, keys = shape["seq_q"].astype(float), shape["seq_kv"].astype(float)
    reach = np.where(shape["window"] > 0, np.minimum(shape["window"], keys), keys)
    pairs = queries * np.where((shape["causal"] > 0) & (shape["window"] == 0), reach / 2, reach)
    widths = (shape["head_dim"] + shape["head_dim_v"]) * shape["batch"]
    forward = 2.0 * pairs * widths * shape["heads"]
    backward = shape["phase"] == int(Phase.BACKWARD)
    read = 2.0 * widths * (queries * shape["heads"] / 2 + keys * shape["kv_heads"])
    written = 2.0 * shape["batch"] * shape["head_dim_v"] * queries * shape["heads"]
    return {
        "flops": forward * np.where(backward, 2.0, 1.0),
        "executed_flops": forward * np.where(backward, 2.5, 1.0),
        "bytes_read": read * np.where(backward, 2.0, 1.0),
        "bytes_written": written * np.where(backward, 3.0, 1.0),
    }


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, Any]:
    """The model, fitted to the burst points that are not held out."""
    columns = calibration.measurements("attention")
    use = ~columns["held"] & (columns["state"] == "burst") & (columns["backend"] != "cpu")
    apart = {name: values[use] for name, values in columns.items()}
    differ = machines.between_cards(calibration, "attention", apart["time_us"] * 1e-6)
    return fit(apart, sku, differ=differ)


def fit(columns: Measurements, sku: Sku, plan: mlp.Training = PLAN, differ: Floats | float = 0.0) -> dict[str, Any]:
    """The model of points with columns of a measurement file. differ: what machines differ by (regression.fit)."""
    rows = table({"attention": columns})
    took_s = measured_s({"attention": columns})
    cut = grid(rows, backend(rows), sku.sm_count)
    work = attention_physics.work(rows, cut, sku)
    fits = attention_physics.fit_of(rows, cut)
    constants, efficiency = attention_physics.fit(work, cut, fits, took_s, sku)
    # the residual learns from what physics misses of points that it was not fitted to
    spent = attention_physics.cross_fitted(work, cut, fits, took_s, sku)
    residual = regression.fit(_rows(rows, cut, work, spent, sku), took_s, plan, nets=2, limit=LIMIT, machines=differ)
    return {"constants": constants, "efficiency": efficiency} | residual.to_arrays()


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Burst times of attention rows; hwdb.kernels.power turns them into sustained ones.

    Formats of other than 16 bit and heads wider than both backends take (MLA's absorbed ones) run on none of the measured
    kernels: the roofline answers, and but for a decode, which is bound by its cache, nothing bounds it above but physics.
    """
    wide = (table.variant == 0) & (np.maximum(table.head_dim, table.head_dim_v) > facts()["flash"]["widest"])
    strange = wide | ~MEASURED_FORMATS[table.precision]
    if not strange.any():
        return _measured(table, model, sku)
    rest, other = np.flatnonzero(~strange), np.flatnonzero(strange)
    parts = [(rest, _measured(table.select(rest), model, sku))] if len(rest) else []
    rough = roofline.predict(table.select(other), {}, sku, state)
    endless = (wide & (table.phase != Phase.DECODE.value))[other]
    return merge(len(table), [*parts, (other, replace(rough, high_s=np.where(endless, np.inf, rough.high_s)))])


def _measured(table: OperatorTable, model: Mapping[str, Any], sku: Sku) -> Times:
    backends = backend(table)
    cut = grid(table, backends, sku.sm_count)
    work = attention_physics.work(table, cut, sku)
    spent = _walls(table, cut, work, model, sku)
    answer = RESIDUAL(model).predict(_rows(table, cut, work, spent, sku))
    distance = answer.distance + np.maximum(np.log2(NARROWEST / np.maximum(table.head_dim, 1)), 0)
    answer = extrapolation.widened(replace(answer, distance=distance), "attention")
    return _times(cut, spent, answer, *_refuse(table, backends), sku.sm_count)


RESIDUAL = Opened(regression.Regression.from_arrays)


measured_s = regression.replayed_s


def group(table: OperatorTable, row: int) -> str:
    """Under which name the card sums a row's error up."""
    return f"{Phase(int(table.phase[row])).name.lower()} {VARIANTS[table.variant[row]]}"


def _walls(table: OperatorTable, cut: Grid, work: Work, model: Mapping[str, Any], sku: Sku) -> Walls:
    efficiency = model["efficiency"][cut.kernel, cut.width // 8, attention_physics.fit_of(table, cut)]
    return attention_physics.walls(work, cut, model["constants"][cut.kernel], efficiency, sku)


def _rows(table: OperatorTable, cut: Grid, work: Work, spent: Walls, sku: Sku) -> regression.Rows:
    """Rows for the residual: place log2 of heads, queries and keys; group the kernel, family phase x backend."""
    sizes = (table.batch * table.heads, table.seq_q, table.seq_kv)
    place = np.log2(np.maximum(np.array(sizes), 1)).T
    family = table.phase * 2 + IS_FLASH[cut.kernel]
    return regression.Rows(spent.time_s, _features(table, cut, work, spent, sku), place, cut.kernel, family)


EACH = np.arange(len(KERNELS))[:, None]
IS_FLASH = np.array([name.startswith("flash") for name in KERNELS])


def _features(table: OperatorTable, cut: Grid, work: Work, spent: Walls, sku: Sku) -> NDArray[np.float32]:
    """What the residual may depend on; shape (rows, inputs)."""
    log = np.log2
    filled = cut.blocks / sku.sm_count
    uneven = (table.seq_q % cut.outer > 0) | (table.seq_kv % cut.inner > 0)
    columns = [
        log(np.minimum(filled, WAVES_MAX)), np.where(filled < 4, np.ceil(filled) / filled, 1.0), log(cut.longest), log(cut.splits),
        work.causal, work.local, uneven, log(cut.width), table.head_dim / cut.width, cut.useful,
        log(table.heads / table.kv_heads), log(spent.time_s * 1e6), spent.compute_s / spent.time_s,
        spent.memory_s / spent.time_s, spent.launch_s / spent.time_s, table.head_dim != table.head_dim_v,
    ]  # fmt: skip
    known = np.array(columns, np.float32)
    return np.ascontiguousarray(np.concatenate([known, (cut.kernel == EACH).astype(np.float32)]).T)


def _refuse(table: OperatorTable, backends: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Index of each row's refusal into the texts, -1 where there is none."""
    texts: dict[str, int] = {}
    refusal = np.full(len(table), -1, np.int64)
    flash = backends == FLASH
    takes = np.where(flash, _takes(table, "flash"), (backends == CUDNN) & _takes(table, "cudnn"))
    for row in [] if takes.all() else np.flatnonzero(~takes).tolist():
        text = _why(int(table.head_dim[row]), int(table.head_dim_v[row]), VARIANTS[backends[row]])
        refusal[row] = texts.setdefault(text, len(texts))
    return refusal, tuple(texts)


def _takes(table: OperatorTable, name: str) -> NDArray[np.bool_]:
    """Whether a backend takes the heads; torch pads those of flash to a multiple of 8 beforehand."""
    rule = facts()[name]
    takes: NDArray[np.bool_] = np.maximum(table.head_dim, table.head_dim_v) <= rule["widest"]
    if not rule["pads"]:
        takes &= (table.head_dim % rule["multiple"] == 0) & (table.head_dim_v % rule["multiple"] == 0)
    if rule["same_value_width"]:
        takes &= table.head_dim == table.head_dim_v
    return takes


def _why(dim: int, dim_v: int, name: str) -> str:
    if name not in ("flash", "cudnn"):
        return f"NOT_MEASURED: {name} attention was not measured; cudnn and flash were"
    rule = facts()[name]
    if dim != dim_v and rule["same_value_width"] and max(dim, dim_v) <= rule["widest"]:
        return f"OUT_OF_RANGE: {name} attention needs head_dim_v equal to head_dim; {dim} and {dim_v} run on cudnn"
    nearest = sorted({_nearest(dim, rule), _nearest(dim_v, rule)})
    which = " and ".join(map(str, nearest))
    return (
        f"OUT_OF_RANGE: {name} attention takes heads up to {rule['widest']} wide in multiples of {rule['multiple']}; "
        f"{dim if dim == dim_v else f'{dim} and {dim_v}'} is not taken, the nearest is {which}"
    )


def _nearest(dim: int, rule: Mapping[str, Any]) -> int:
    step = int(rule["multiple"])
    return int(min(max(-(-dim // step) * step, step), rule["widest"]))


def _times(
    cut: Grid,
    spent: Walls,
    answer: regression.Answer,
    refusal: Ints,
    refusals: tuple[str, ...],
    sms: int,
) -> Times:
    """The residual scales every part alike, so that the parts add up to the time."""
    scale = answer.time_s / spent.time_s
    parts = np.array([spent.compute_s - spent.special_s, spent.memory_s, spent.special_s, spent.launch_s]) * scale
    gone = refusal >= 0
    nothing = np.zeros(len(gone))
    return Times(
        time_s=np.where(gone, np.nan, answer.time_s),
        low_s=np.where(gone, np.nan, answer.low_s),
        high_s=np.where(gone, np.nan, answer.high_s),
        compute_s=spent.compute_s * scale,
        memory_s=spent.memory_s * scale,
        special_s=spent.special_s * scale,
        launch_s=spent.launch_s * scale,
        padding_s=spent.padding_s * scale,
        wave_s=spent.wave_s * scale,
        alignment_s=nothing,
        wall=WALLS[parts.argmax(0)],
        trust=extrapolation.trust(answer.distance, "attention", Trust.MEASURED),
        distance=answer.distance,
        kernel=cut.kernel,
        tiles=cut.blocks,
        waves=np.ceil(cut.blocks / sms),
        refusal=refusal,
        kernel_names=NAMES,
        refusals=refusals,
    )


NAMES = tuple(facts()["kernel"][name]["name"] for name in KERNELS)
WALLS = np.array([Wall.COMPUTE, Wall.MEMORY, Wall.SPECIAL_FUNCTION, Wall.LAUNCH])
