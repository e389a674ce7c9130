"""Memory-bound kernels: nothing but casts to fp8 was published per shape, so the rest is carried over from a sibling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels import transfer
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall, merge

QUANTIZE = OP_CODES["quantize"]
COVERAGE = 0.9
CACHED = 0.5  # of L2: tensors up to here stay there between the replays of a graph
BANDS = np.array([2.0**20, 2.0**24])


def fit(moved: Floats, measured_s: Floats, sku: Sku) -> dict[str, Any]:
    """Law of the cast kernel: floor + bytes over the cache's rate, or over device memory's; margins by size."""
    from scipy.optimize import least_squares

    cached = moved <= CACHED * sku.l2_bytes
    start = np.log([1.6e-6, sku.hbm_bytes_per_s, 0.85 * sku.hbm_bytes_per_s])

    def wrong(logs: Floats) -> NDArray[np.float64]:
        return np.log(_seconds(np.exp(logs), moved, cached) / measured_s)

    found = np.exp(least_squares(wrong, start, loss="soft_l1", f_scale=0.05).x)
    error, band = np.abs(wrong(np.log(found))), np.searchsorted(BANDS, moved)
    margins = [float(np.quantile(error[band == one], COVERAGE)) for one in range(len(BANDS) + 1)]
    return {"cast": [float(f"{value:.4g}") for value in found], "margins": margins}


def _seconds(constants: Floats, moved: Floats, cached: NDArray[np.bool_]) -> Floats:
    floor, cache, device = constants
    seconds: Floats = floor + moved / np.where(cached, cache, device)
    return seconds


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Casts by their own law, everything else carried over (device memory's clock does not fall under load)."""
    casts = (table.op == QUANTIZE) & ("cast" in model)
    known, other = np.flatnonzero(casts), np.flatnonzero(~casts)
    parts = [(known, _cast(table.select(known), model, sku))] if len(known) else []
    if len(other):
        parts.append((other, transfer.predict(table.select(other), str(model["sibling"]), sku, state)))
    return merge(len(table), parts)


def _cast(table: OperatorTable, model: Mapping[str, Any], sku: Sku) -> Times:
    moved = table.bytes_read + table.bytes_written
    constants = np.array(model["cast"])
    time = _seconds(constants, moved, moved <= CACHED * sku.l2_bytes)
    margin = np.array(model["margins"])[np.searchsorted(BANDS, moved)]
    none, floor = np.zeros(len(table)), np.full(len(table), constants[0])
    return Times(
        time_s=time, low_s=time * np.exp(-margin), high_s=time * np.exp(margin), compute_s=none, memory_s=time - floor,
        special_s=none, launch_s=floor, padding_s=none, wave_s=none, alignment_s=none,
        wall=np.where(time > 2 * floor, int(Wall.MEMORY), int(Wall.LAUNCH)),
        trust=np.full(len(table), int(Trust.PUBLISHED)), distance=none, kernel=np.full(len(table), -1), tiles=none,
        waves=none, refusal=np.full(len(table), -1),
    )  # fmt: skip
