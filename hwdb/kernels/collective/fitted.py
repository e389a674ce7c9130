"""Collectives by operation: latency, then bytes over the bus; time = (latency^2 + transfer^2)^(1/2) x residual of none.

Fitted for the ranks that were measured. Other numbers of ranks scale by bus bytes and hops, and widen the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.calibration import Calibration, Measurements
from tilewise.hwdb.kernels.rates import rates
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, Ints, Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust, Wall

MEASURED = ("collectives",)
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SMALL_BYTES, LARGE_BYTES = 2**20, 2**26  # up to here latency alone; from here on the bus alone
COVERAGE = 0.9
RANKS_WIDEN = 0.35  # log of the interval's factor per octave of ranks: bus bandwidths of 2 to 8 ranks differ so much
RANKS_MAX = 8  # of one board; beyond it other links count
BANDS = np.array([SMALL_BYTES, LARGE_BYTES])


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, NDArray[Any]]:
    """Arrays by operation: latency_s, bus_bytes_per_s, ranks, and margins (operations, size bands) of log(time)."""
    columns = calibration.measurements("collectives")
    rows = ~columns["held"] & (columns["nodes"] == 1)
    return fit({name: values[rows] for name, values in columns.items()})


def fit(columns: Measurements) -> dict[str, NDArray[Any]]:
    """Fit to measured columns (calibration/benchmarks/collectives.py); an operation without points has NaN."""
    latency, bus, ranks = (np.full(len(OPERATIONS), np.nan) for _ in range(3))
    margins = np.ones((len(OPERATIONS), len(BANDS) + 1))
    size, time = columns["bytes"].astype(float), columns["time_us"] * 1e-6
    for index, name in enumerate(OPERATIONS):
        rows = columns["op"] == name
        if not rows.any():
            continue
        ranks[index] = np.max(columns["ranks"][rows])
        rows &= columns["ranks"] == ranks[index]
        share = float(_bus_share(np.array([index]), ranks[index : index + 1])[0])
        large = rows & (size >= LARGE_BYTES)
        latency[index] = np.median(time[rows & (size <= SMALL_BYTES)])
        bus[index] = np.median(share * size[large] / np.sqrt(np.maximum(time[large] ** 2 - latency[index] ** 2, 1e-18)))
        error = np.abs(np.log(np.hypot(latency[index], share * size / bus[index]) / time))
        margins[index] = _margins(error[rows], np.searchsorted(BANDS, size[rows]))
    return {"latency_s": latency, "bus_bytes_per_s": bus, "ranks": ranks, "margins": margins}


def _margins(error: Floats, band: Ints) -> Floats:
    """The COVERAGE quantile of every band's errors; all errors where a band has few."""
    found = np.full(len(BANDS) + 1, np.quantile(error, COVERAGE))
    for one in range(len(found)):
        mine = error[band == one]
        if len(mine) >= 5:
            found[one] = np.quantile(mine, min(1.0, COVERAGE * (1 + 1 / len(mine))))
    return found


def _bus_share(operation: Ints, ranks: Floats) -> Floats:
    """Bytes on the busiest link per message byte (nccl-tests, doc/PERFORMANCE.md)."""
    factor = np.where(operation == 0, 2.0, 1.0)
    share: Floats = np.where(operation == len(OPERATIONS) - 1, 1.0, factor * (ranks - 1) / np.maximum(ranks, 1))
    return share


OPERATION_OF = np.full(max(OP_CODES.values()) + 1, -1)
OPERATION_OF[[OP_CODES[name] for name in OPERATIONS]] = np.arange(len(OPERATIONS))


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of collectives; of one rank, nothing. Ranks beyond one board, or an operation never measured, are refused."""
    operation, ranks = OPERATION_OF[table.op], table.ranks.astype(float)
    measured = model["ranks"][operation]
    octaves = np.abs(np.log2(np.maximum(ranks, 2.0) / measured))
    latency = model["latency_s"][operation] + rates(sku, state).hop_s * np.maximum(ranks - measured, 0.0)
    transfer = _bus_share(operation, ranks) * table.message_bytes / model["bus_bytes_per_s"][operation]
    alone = ranks <= 1
    time = np.where(alone, 0.0, np.hypot(latency, transfer))
    margin = model["margins"][operation, np.searchsorted(BANDS, table.message_bytes)] + RANKS_WIDEN * octaves
    refused = ~alone & (~np.isfinite(time) | (ranks > RANKS_MAX))
    time = np.where(refused, np.nan, time)
    none = np.zeros(len(table))
    reason = f"OUT_OF_RANGE: collectives were measured among {np.nanmax(model['ranks']):.0f} ranks, at most {RANKS_MAX} are answered"
    return Times(
        time_s=time,
        low_s=time * np.exp(-margin),
        high_s=time * np.exp(margin),
        compute_s=none,
        memory_s=none,
        special_s=none,
        launch_s=np.where(alone, 0.0, latency),
        padding_s=none,
        wave_s=none,
        alignment_s=none,
        wall=np.full(len(table), int(Wall.COMMUNICATION)),
        trust=np.full(len(table), int(Trust.MEASURED)),
        distance=np.where(alone, 0.0, octaves),
        kernel=np.full(len(table), -1),
        tiles=none,
        waves=none,
        refusal=np.where(refused, 0, -1),
        refusals=(reason,) if refused.any() else (),
    )


def table(measurements: Mapping[str, Measurements]) -> OperatorTable:
    """One row a measured point."""
    columns = measurements["collectives"]
    rows = {
        "kind": np.full(len(columns["op"]), int(Kind.COLLECTIVE)),
        "op": np.array([OP_CODES[str(name)] for name in columns["op"]], np.int64),
        "ranks": columns["ranks"],
        "message_bytes": columns["bytes"].astype(float),
    }
    return table_from_columns([Label(name="point", layer="", part="")], 1, len(rows["op"]), rows)
