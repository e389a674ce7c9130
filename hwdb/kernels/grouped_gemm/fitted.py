"""Grouped GEMM, one matrix product an expert in one kernel: row tiles of every expert, bytes of all experts.

time = (floor + start x tiles / SMs + (compute^p + memory^p)^(1/p)) x residual; compute: whole tiles at a rate, memory:
every expert's matrix once, be it hit or not, and the rows. The constants are fitted by layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.kernels import machines, transfer
from tilewise.hwdb.kernels.learning import extrapolation, mlp, regression
from tilewise.hwdb.kernels.learning.opened import Opened
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Kind, Label, Layout, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust, Wall, merge

MEASURED = ("grouped_gemm",)
LAYOUTS = {"fwd": Layout.FORWARD, "dgrad": Layout.INPUT_GRADIENT, "wgrad": Layout.WEIGHT_GRADIENT}
TILE_ROWS, TILE_COLS = 128, 256  # of the CUTLASS kernel that torch._grouped_mm builds
# where the fit starts from: seconds of the kernel that lays out the groups and of a tile's start, shares of the
# datasheet's rates, exponent with which the walls join
START = np.array([8e-6, 3e-7, 0.8, 0.9, 2.0])
PLAN = mlp.Training(hidden=(48, 48), epochs=500, batch=32, rate=3e-3, decay=1e-1)


class Work(Record):
    """Seconds of the two walls at full rate, and the tiles they come from; arrays of shape (rows,)."""

    compute_s: Floats
    memory_s: Floats
    tiles: Floats
    waves: Floats
    padding: Floats
    per_group: Floats

    def seconds(self, constants: Floats, sms: int) -> Floats:
        """The law; constants as START, one set, shape (5,), or one a row, shape (5, rows)."""
        floor, start, compute, memory, power = constants
        compute_s, memory_s = self.compute_s / compute, self.memory_s / memory
        larger = np.maximum(compute_s, memory_s)
        joined: Floats = larger * (1 + (np.minimum(compute_s, memory_s) / larger) ** power) ** (1 / power)
        total: Floats = floor + start * self.tiles / sms + joined
        return total

    def __getitem__(self, rows: NDArray[np.bool_]) -> Work:
        return Work(*(getattr(self, name)[rows] for name in self.__struct_fields__))


def work(table: OperatorTable, sku: Sku) -> Work:
    """Walls at the datasheet's rates. Tiles over the rows of every expert; of a weight gradient over every expert's matrix."""
    groups = np.maximum(table.groups, 1.0)
    gradient = table.layout == Layout.WEIGHT_GRADIENT.value
    per_group = np.maximum(np.where(gradient, table.k, table.m) / groups, 1.0)
    row_tiles = np.where(gradient, groups * np.ceil(table.m / TILE_ROWS), _row_tiles(table.m, groups, table.skew))
    tiles = row_tiles * np.ceil(table.n / TILE_COLS)
    depth = np.where(gradient, per_group, table.k)
    flops = tiles * (2.0 * TILE_ROWS * TILE_COLS) * depth
    waves = np.ceil(tiles / sku.sm_count)
    rate = sku.peak(Precision.BF16).flops_per_s
    useful = np.maximum(table.flops, 2.0 * table.m * table.n * table.k)
    memory = (table.bytes_read + table.bytes_written) / sku.hbm_bytes_per_s
    return Work(flops / rate, memory, tiles, waves, flops / useful, per_group)


def _row_tiles(m: Floats, groups: Floats, skew: Floats) -> Floats:
    """Row tiles of all groups, whose sizes fall as rank^-skew."""
    even = groups * np.ceil(m / groups / TILE_ROWS)
    uneven = np.flatnonzero(skew > 0)
    if not len(uneven):
        return even
    rank = np.arange(int(groups[uneven].max())) + 1.0
    weight = rank ** -skew[uneven, None] * (rank <= groups[uneven, None])
    sizes = m[uneven, None] * weight / weight.sum(1, keepdims=True)
    even[uneven] = np.ceil(np.round(sizes) / TILE_ROWS).sum(1)
    return even


def _rows(table: OperatorTable, w: Work, constants: Floats, sku: Sku) -> regression.Rows:
    """Rows for the residual: place log2 of rows a group, columns and depth; group and family the layout."""
    log, base = np.log2, w.seconds(constants[table.layout].T, sku.sm_count)
    columns = [
        log(w.per_group), log(np.maximum(table.groups, 1.0)), log(np.maximum(table.n, 1)), log(np.maximum(table.k, 1)),
        log(np.maximum(table.m, 1.0)), log(w.padding), log(w.compute_s / w.memory_s), log(base * 1e6),
        np.minimum(log(w.tiles / sku.sm_count), 6.0), w.waves * sku.sm_count / w.tiles, table.skew,
        np.minimum(w.per_group / 64, 4.0), START[0] / base,
    ]  # fmt: skip
    columns += [(table.layout == layout) for layout in (Layout.INPUT_GRADIENT, Layout.WEIGHT_GRADIENT)]
    gradient = table.layout == Layout.WEIGHT_GRADIENT.value
    cols, depth = np.maximum(table.n, 1), np.maximum(np.where(gradient, table.m, table.k), 1)
    place = np.stack([log(w.per_group), log(cols), log(depth)], 1)
    return regression.Rows(base, np.stack(columns, 1).astype(np.float32), place, table.layout, table.layout)


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, NDArray[Any]]:
    """The model, fitted to the burst points that are not held out."""
    columns = calibration.measurements("grouped_gemm")
    rows = ~columns["held"] & (columns["state"] == "burst")
    apart = {name: values[rows] for name, values in columns.items()}
    return fit(apart, sku, machines.between_cards(calibration, "grouped_gemm", apart["time_us"] * 1e-6))


def fit(columns: Measurements, sku: Sku, differ: Floats | float = 0.0) -> dict[str, NDArray[Any]]:
    """Fit to measured columns (calibration/benchmarks/grouped_gemm.py). differ: what machines differ by (regression.fit)."""
    points = table({"grouped_gemm": columns})
    took_s, w = measured_s({"grouped_gemm": columns}), work(points, sku)
    constants = np.stack([_law(w[points.layout == one], took_s[points.layout == one], sku) for one in Layout])
    fitted = regression.fit(_rows(points, w, constants, sku), took_s, PLAN, nets=4, limit=1.0, machines=differ)
    return {"constants": constants} | fitted.to_arrays()


measured_s = regression.replayed_s


def _law(w: Work, measured_s: Floats, sku: Sku) -> Floats:
    """The constants of one layout; START where it was not measured."""
    from scipy.optimize import least_squares

    def errors(logs: Floats) -> Floats:
        off = np.log(w.seconds(np.exp(logs), sku.sm_count) / measured_s)
        return np.concatenate([off, 0.05 * (logs - np.log(START))])

    found: Floats = np.exp(least_squares(errors, np.log(START), loss="soft_l1", f_scale=0.03).x)
    return found


class GroupedModel(Record):
    """constants: of the law by layout, shape (3, 5)."""

    constants: Floats
    residual: regression.Regression


OPEN = Opened(lambda model: GroupedModel(model["constants"], regression.Regression.from_arrays(model)))


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of grouped GEMMs; those of another format than the measured 16 bits are carried over from it."""
    measured = np.isin(table.precision, MEASURED_FORMATS)
    if measured.all():
        return _measured(table, model, sku)
    rows, other = np.flatnonzero(measured), np.flatnonzero(~measured)
    parts = [(rows, _measured(table.select(rows), model, sku))] if len(rows) else []
    ask = partial(_measured, model=model, sku=sku)
    return merge(len(table), [*parts, (other, transfer.in_format(table.select(other), ask, sku, state))])


def _measured(table: OperatorTable, model: Mapping[str, Any], sku: Sku) -> Times:
    w = work(table, sku)
    m = OPEN(model)
    answer = extrapolation.widened(m.residual.predict(_rows(table, w, m.constants, sku)), "grouped_gemm")
    none, lost = np.zeros(len(table)), w.compute_s * (1 - 1 / w.padding)
    return Times(
        time_s=answer.time_s,
        low_s=answer.low_s,
        high_s=answer.high_s,
        compute_s=w.compute_s,
        memory_s=w.memory_s,
        special_s=none,
        launch_s=m.constants[table.layout, 0],
        padding_s=np.where(w.compute_s > w.memory_s, lost, 0.0),
        wave_s=none,
        alignment_s=none,
        wall=np.where(w.compute_s > w.memory_s, Wall.COMPUTE, Wall.MEMORY),
        trust=extrapolation.trust(answer.distance, "grouped_gemm", Trust.MEASURED),
        distance=answer.distance,
        kernel=np.full(len(table), -1),
        tiles=w.tiles,
        waves=w.waves,
        refusal=np.full(len(table), -1),
    )


MEASURED_FORMATS = (Precision.BF16, Precision.FP16)  # timed in bf16, which fp16 matches


def table(measurements: Mapping[str, Measurements]) -> OperatorTable:
    """One row a measured point; a weight gradient's rows are its depth."""
    c = measurements["grouped_gemm"]
    layout = np.array([LAYOUTS[str(kind)] for kind in c["kind"]], np.int64)
    gradient = layout == Layout.WEIGHT_GRADIENT.value
    turned = layout == Layout.INPUT_GRADIENT.value
    m, n, k = (c[name].astype(float) for name in ("m", "n", "k"))
    groups = c["groups"].astype(float)
    columns = {
        "kind": np.full(len(m), int(Kind.GROUPED_GEMM)),
        "layout": layout,
        "precision": np.full(len(m), int(Precision.BF16)),
        "groups": groups,
        "skew": c["skew"] / 100.0,
        "m": np.where(gradient, n, m),
        "n": np.where(gradient | turned, k, n),
        "k": np.where(gradient, m, np.where(turned, n, k)),
        "flops": 2.0 * m * n * k,
        "bytes_read": 2.0 * np.where(gradient, m * (n + k), m * np.where(turned, n, k) + groups * n * k),
        "bytes_written": 2.0 * np.where(gradient, groups * n * k, m * np.where(turned, k, n)),
    }
    return table_from_columns([Label(name="point", layer="", part="")], 1, len(m), columns)
