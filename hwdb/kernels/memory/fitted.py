"""Memory-bound kernels: the law of each measured kernel, times a residual that is learned over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.kernels.learning import extrapolation, mlp, regression
from tilewise.hwdb.kernels.learning.opened import Opened
from tilewise.hwdb.kernels.memory import choice as memory_kernels
from tilewise.hwdb.kernels.memory import physics as memory_law
from tilewise.hwdb.kernels.memory.choice import WIDE, Catalogue
from tilewise.hwdb.kernels.memory.physics import Walls, Work
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import (
    Floats,
    Ints,
    Kind,
    Label,
    OperatorTable,
    Residency,
    kernel_codes,
    present,
    table_from_columns,
)
from tilewise.hwdb.times import State, Times, Trust, Wall

MEASURED = ("memory", "pointwise", "norms", "loss", "routing", "optimizer", "compiled")
WARM_BYTES = 3e7  # footprint of rotating inputs below which a measured point was really warm
STAND_IN = 1.3  # factor on the interval's bounds where another kernel stands in
PLAN, NETS = mlp.Training(hidden=(32, 32), epochs=150, batch=64, rate=4e-3, decay=2e-2), 4
FOLDS = 4
PERSISTENT = 8.0  # 32 blocks an SM holds at most over 4 of 16 warps (triton_heuristics.py: one warp, min(1024 // columns, 8) rows each)
LAST_STREAM = 1  # classes of memory.toml up to here have no rows: only their bytes matter
# where time is a floor or goes linear there is nothing to extrapolate: log2 of bytes and columns saturate here. Points of the
# three octaves of bytes above all others of their kernels are predicted as well at three as at one (16 to 20 % at the 90th percentile)
BYTES_LOG2, COLS_LOG2_MAX = (20.0, 30.0), 18.0


class MemoryModel(Record):
    """catalogue: which kernel answers; constants: (kernels, paths, 6) of the law; kinds: class of each kernel; share: of the residual, by class."""

    catalogue: Catalogue
    constants: Floats
    kinds: Ints
    share: Floats
    residual: regression.Regression

    @classmethod
    def open(cls, model: Mapping[str, Any]) -> MemoryModel:
        kernels = [(str(name), bool(wide)) for name, wide in model["kernels"]]
        return cls(
            memory_kernels.catalogue(kernels),
            model["constants"],
            np.array([memory_kernels.class_of(name) for name, _ in kernels]),
            model["share"],
            regression.Regression.from_arrays(model),
        )


OPEN = Opened(MemoryModel.open)


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, Any]:
    """The model, fitted to the burst points that are not held out."""
    families = [family for family in MEASURED if family in calibration.families()]
    return fit({family: _fitted(calibration.measurements(family)) for family in families}, sku)


def _fitted(columns: Measurements) -> Measurements:
    rows = ~columns["held"] & (columns["state"] == "burst")
    return {name: values[rows] for name, values in columns.items()}


def fit(measurements: Mapping[str, Measurements], sku: Sku) -> dict[str, Any]:
    """Fit to measured columns by family (see calibration/benchmarks/traffic.py)."""
    points = Points.of(measurements, sku)
    everything = np.ones(len(points.measured_s), bool)
    constants, fitted, _ = _fit(points, everything)
    rows, plain, full = _unseen(points)
    share = _share(points.kinds[points.kernel], plain, full, len(memory_kernels.rules()["class"]))
    mine = share[points.kinds[points.kernel]]
    error = plain + mine * (full - plain)
    fitted = regression.judged(fitted, rows, points.measured_s * np.exp(error), error)
    return {
        "kernels": [list(one) for one in points.kernels], "constants": constants, "share": share, **fitted.to_arrays()
    }  # fmt: skip


measured_s = regression.replayed_s


class Points(Record):
    """Measured points as the fit sees them: kernels as (name, wide), each one's class, each point's kernel."""

    kernels: list[tuple[str, bool]]
    kinds: Ints
    kernel: Ints
    work: Work
    measured_s: Floats

    @classmethod
    def of(cls, measurements: Mapping[str, Measurements], sku: Sku) -> Points:
        points = table(measurements)
        sets = np.concatenate([columns["sets"] for columns in measurements.values()]).astype(float)
        names = np.concatenate([memory_kernels.names_of(*item) for item in measurements.items()])
        wide = WIDE[points.precision] & ~np.array([memory_kernels.same_when_wide(str(name)) for name in names])
        keys = list(zip(names.tolist(), wide.tolist(), strict=True))
        kernels = sorted(set(keys))
        index = {key: at for at, key in enumerate(kernels)}
        kernel = np.array([index[key] for key in keys])
        kinds = np.array([memory_kernels.class_of(name) for name, _ in kernels])
        work = memory_law.work(points, memory_kernels.traits()[kinds[kernel]], sku, sets)
        return cls(kernels, kinds, kernel, work, measured_s(measurements))


def _fit(p: Points, use: NDArray[np.bool_]) -> tuple[Floats, regression.Regression, regression.Rows]:
    """Law and residual fitted to some points; rows of all points under that law."""
    by_row = memory_kernels.traits()[p.kinds].rows_in_flight > 0
    constants = memory_law.fit(p.work[use], p.measured_s[use], p.kernel[use], p.kinds, by_row)
    parts = memory_law.walls(constants[p.kernel, p.work.path].T, p.work)
    rows = _rows(p.work, parts, p.kernel, p.kinds)
    return constants, regression.taught(rows[use], p.measured_s[use], PLAN, NETS, limit=0.7), rows


def _unseen(p: Points) -> tuple[regression.Rows, Floats, Floats]:
    """Log errors of every point by a law alone, and with its residual, neither of which saw the point's shape."""
    shapes = np.unique(np.stack([p.kernel, p.work.rows, p.work.cols, p.work.read]), axis=1, return_inverse=True)[1]
    fold = np.random.default_rng(FOLDS).permutation(shapes.max() + 1)[shapes] % FOLDS
    plain, full = np.zeros(len(fold)), np.zeros(len(fold))
    for one in range(FOLDS):
        apart = fold == one
        _, fitted, rows = _fit(p, ~apart)
        plain[apart] = np.log(rows.base_s[apart] / p.measured_s[apart])
        full[apart] = plain[apart] + fitted.residual(rows.features[apart])
    return rows, plain, full


def _share(kind: Ints, plain: Floats, full: Floats, classes: int) -> Floats:
    """How much of the residual each class takes: as much as made unseen points better; shape (classes,)."""
    steps = np.linspace(0, 1, 5)
    share = np.ones(classes)
    for one in np.unique(kind):
        mine = kind == one
        errors = [np.abs(plain[mine] + step * (full - plain)[mine]).mean() for step in steps]
        share[one] = steps[int(np.argmin(errors))]
    return share


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of memory-bound rows."""
    m = OPEN(model)
    at = table.op, table.variant, WIDE[table.precision].astype(np.int64)
    kernel, own = m.catalogue.index[at], m.catalogue.own[at]
    traits = memory_kernels.traits()[m.kinds[kernel]]
    work = _packed(memory_law.work(table, traits, sku), m.constants[kernel], traits.looped_beyond)
    parts = memory_law.walls(m.constants[kernel, work.path].T, work)
    rows = _rows(work, parts, kernel, m.kinds)
    answer = extrapolation.widened(m.residual.predict(rows, m.share[m.kinds[kernel]]), "memory")
    return _times(table, parts, answer, own, kernel >= 0)


def _packed(work: Work, constants: Floats, looped: Floats) -> Work:
    """With short rows that cost by their columns where a kernel's constants are those of long rows alone.

    Inductor's persistent reductions give a warp as many rows as have 1,024 columns, and an SM holds PERSISTENT times as many such warps
    as blocks that loop over a row; only calibrations with points of both kinds know what such a row costs.
    """
    borrowed = (looped > 0) & (work.path == 0) & (constants[:, 0] == constants[:, 1]).all(axis=1)
    rows = work.units * work.cols / np.maximum(looped, 1) / PERSISTENT
    return replace(work, units=np.where(borrowed, rows, work.units))


def _times(
    table: OperatorTable, parts: Walls, answer: regression.Answer, own: NDArray[np.bool_], known: NDArray[np.bool_]
) -> Times:
    time = np.where(known, answer.time_s, np.nan)
    spread = np.where(own, 1.0, STAND_IN)
    base = np.maximum(parts.chip_s, parts.rows_s)
    none = np.zeros(len(table))
    launch = parts.floor_s + parts.latency_s
    return Times(
        time_s=time,
        low_s=answer.low_s / spread + 0 * time,
        high_s=answer.high_s * spread + 0 * time,
        compute_s=none,
        memory_s=np.maximum(base, parts.memory_s),
        special_s=none,
        launch_s=launch,
        padding_s=none,
        wave_s=none,
        alignment_s=none,
        wall=np.where(launch > np.maximum(base, parts.memory_s), Wall.LAUNCH.value, Wall.MEMORY.value),
        trust=np.where(own, extrapolation.trust(answer.distance, "memory", Trust.MEASURED), Trust.DATASHEET.value),
        distance=answer.distance,
        kernel=np.full(len(table), -1),
        tiles=none,
        waves=none,
        refusal=np.where(known, -1, 0),
        refusals=("NOT_MEASURED: this calibration measured no kernel of this kind",),
    )


def _rows(work: Work, parts: Walls, kernel: Ints, kinds: Ints) -> regression.Rows:
    """Rows for the residual: place log2 of bytes and columns; group the kernel; family its class, whose law it shares, and path."""
    kind = kinds[kernel]
    base = parts.time_s
    rows, cols = np.log2(work.rows), np.log2(work.cols)
    both = np.log2(np.maximum(work.read + work.written, 1.0))
    wide = np.where(kind > LAST_STREAM, np.minimum(cols, COLS_LOG2_MAX), 0.0)
    place = np.array([np.minimum(np.maximum(both, BYTES_LOG2[0]), BYTES_LOG2[1]), wide]).T
    classes, kernels = np.array(present(kinds))[:, None], np.arange(len(kinds))[:, None]
    which = np.concatenate([kind == classes, kernel == kernels])
    regular = 2 * kind + (work.path > 0)  # what leaves a rest of a vector or a block is less sure, and rare in models
    return regression.Rows(base, _features(work, parts, base, rows, cols, both, which), place, kernel, regular)


def _features(
    work: Work,
    parts: Walls,
    base: Floats,
    rows: Floats,
    cols: Floats,
    both: Floats,
    which: NDArray[np.bool_],
) -> NDArray[np.float32]:
    """What the residual may depend on; shape (rows, inputs). which: class and kernel of each row, one line each."""
    columns = np.empty((13 + len(which), len(base)), np.float32)
    columns[0], columns[1], columns[2] = rows, cols, both
    columns[3] = np.log2(base * 1e6)
    columns[4], columns[5] = parts.floor_s / base, parts.latency_s / base
    columns[6], columns[7], columns[8] = parts.chip_s / base, parts.memory_s / base, parts.rows_s / base
    columns[9] = work.missed / (work.read + work.written + 1.0)
    columns[10] = work.written / (work.read + work.written + 1.0)
    columns[11] = work.path
    columns[12] = np.exp2(np.ceil(cols) - cols)  # padding of a row to a power of two
    columns[13:] = which
    return np.ascontiguousarray(columns.T)


def table(measurements: Mapping[str, Measurements]) -> OperatorTable:
    """One row a measured point. Kernels over heads have a row a head, as in a model's table."""
    parts = [_columns(family, columns) for family, columns in measurements.items()]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    length = len(joined["op"])
    return table_from_columns([Label(name="point", layer="", part="")], 1, length, joined)


def _columns(family: str, columns: Measurements) -> dict[str, NDArray[Any]]:
    codes = np.array([kernel_codes(name) for name in memory_kernels.names_of(family, columns)]).reshape(-1, 2)
    inner = np.where(columns["inner"] > 0, columns["inner"], columns["cols"]).astype(float)
    sets, read, written = (columns[name].astype(float) for name in ("sets", "bytes_read", "bytes_written"))
    named = {"reused": Residency.REUSED, "warm": Residency.WARM, "cold": Residency.COLD}
    residency = np.array([named[str(name)] for name in columns["residency"]], np.int64)
    outputs = np.where(residency == Residency.COLD, sets, 1.0)
    warm = sets * read + outputs * written < WARM_BYTES
    return {
        "kind": np.full(len(inner), int(Kind.MEMORY)),
        "op": codes[:, 0],
        "variant": codes[:, 1],
        "precision": memory_kernels.precisions_of(columns),
        "rows": columns["rows"] * columns["cols"] / inner,
        "cols": inner,
        "bytes_read": read,
        "bytes_written": written,
        "residency": np.where(warm, int(Residency.WARM), residency),
    }
