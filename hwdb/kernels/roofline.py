"""The roofline: times from ceilings alone, where no model was fitted to measurements of the kernel.

time = factor x (largest wall + launch floor). A wall is work over its reachable rate; `factor` and its 90 % range are
what published measurements show around this roofline (hwdb/roofline.toml).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.kernels.rates import Rates, assumptions, rates
from tilewise.hwdb.kernels.tiles import Quantisation, quantisation
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OPS, Floats, Ints, Kind, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall

SPREADS = (  # Kind, with attention split by Phase
    *("gemm", "grouped_gemm", "attention_forward", "memory", "collective"),
    *("attention_backward", "attention_decode"),
)
BUS_FACTOR = {  # bus bytes per message byte among n ranks: factor x (n - 1) / n (nccl-tests, doc/PERFORMANCE.md)
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
}


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of every row, of any kind; `model` is not used, the roofline has none.

    A row whose precision the GPU lacks is refused: NaN times and a reason that names what the GPU has.
    """
    rate = rates(sku, state)
    matrix = (table.kind == Kind.GEMM) | (table.kind == Kind.GROUPED_GEMM)
    quantised = quantisation(table, sku)
    units = matrix | (table.kind == Kind.ATTENTION)
    flops = np.where(units, np.maximum(table.flops, table.executed_flops), 0.0)
    ideal = flops / rate.compute[table.precision]
    lost = _losses(ideal, quantised, matrix)
    collective = table.kind == Kind.COLLECTIVE
    bytes_moved = np.where(collective, 0.0, table.bytes_read + table.bytes_written)
    cached = (table.kind == Kind.MEMORY) & (bytes_moved <= rate.l2_capacity)
    walls = np.stack(
        [
            ideal + lost.sum(axis=0),
            bytes_moved / np.where(cached, rate.l2, rate.hbm),
            table.special / rate.special,
            rate.floor_s * np.maximum(table.kernels, 1.0),
            np.zeros(len(table)),
        ]
    )
    walls[:, collective] = _collective(table, collective, rate)
    least = np.maximum(
        flops / rate.compute_peak[table.precision],
        np.where(cached, walls[1], bytes_moved / rate.hbm_peak),
    )
    return _times(table, rate, walls, least, lost, quantised, matrix)


def _losses(ideal: Floats, quantised: Quantisation, matrix: NDArray[np.bool_]) -> Floats:
    """Seconds that padding, waves and alignment add to the compute wall; shape (3, rows)."""
    padded = ideal * quantised.padding
    waved = padded * quantised.wave
    steps = np.stack([padded - ideal, waved - padded, waved * (quantised.alignment - 1)])
    return np.where(matrix, steps, 0.0)


def _collective(table: OperatorTable, rows: NDArray[np.bool_], rate: Rates) -> Floats:
    """Walls of collectives: latency by the number of ranks as launch, bytes over bus bandwidth as communication."""
    ranks = np.maximum(table.ranks[rows], 1)
    factor = _bus_factors()[table.op[rows]] * np.where(table.op[rows] == OPS.index("send_recv"), 1, (ranks - 1) / ranks)
    walls = np.zeros((len(Wall), len(ranks)))
    walls[Wall.LAUNCH] = np.where(ranks > 1, rate.base_s + rate.hop_s * (ranks - 1), 0.0)
    walls[Wall.COMMUNICATION] = np.where(ranks > 1, table.message_bytes[rows] * factor / rate.bus, 0.0)
    return walls


@cache
def _bus_factors() -> Floats:
    return np.array([BUS_FACTOR.get(op, 1.0) for op in OPS])


def _times(
    table: OperatorTable,
    rate: Rates,
    walls: Floats,
    least: Floats,
    lost: Floats,
    quantised: Quantisation,
    matrix: NDArray[np.bool_],
) -> Times:
    needs_units = matrix | (table.kind == Kind.ATTENTION)
    refusal = np.where(needs_units, rate.refusal[table.precision], -1)
    trust = _trust(table, rate, needs_units)
    low, middle, high = _spread(table, trust)
    busy = walls[: Wall.LAUNCH].max(axis=0)
    base = np.maximum(busy, walls[Wall.COMMUNICATION]) + walls[Wall.LAUNCH]
    base = np.where(refusal >= 0, np.nan, base)
    time = np.maximum(base * middle, least)
    wall = walls.argmax(axis=0)
    shown = np.where(wall == Wall.COMPUTE, lost * middle, 0.0)
    return Times(
        time_s=time,
        low_s=np.maximum(base * low, least),
        high_s=np.maximum(base * high, time),
        compute_s=walls[Wall.COMPUTE],
        memory_s=walls[Wall.MEMORY],
        special_s=walls[Wall.SPECIAL_FUNCTION],
        launch_s=walls[Wall.LAUNCH],
        padding_s=shown[0],
        wave_s=shown[1],
        alignment_s=shown[2],
        wall=np.where(table.kind == Kind.COLLECTIVE, Wall.COMMUNICATION, wall),
        trust=trust,
        distance=np.full(len(table), np.nan),
        kernel=np.full(len(table), -1),
        tiles=np.where(matrix, quantised.tiles, 0.0),
        waves=np.where(matrix, quantised.waves, 0.0),
        refusal=refusal,
        refusals=rate.refusals,
    )


def _trust(table: OperatorTable, rate: Rates, needs_units: NDArray[np.bool_]) -> Ints:
    units = np.minimum(rate.compute_trust[table.precision], rate.memory_trust)
    rest = np.where(table.kind == Kind.COLLECTIVE, rate.collective_trust, rate.memory_trust)
    return np.where(needs_units, units, rest)


def _spread(table: OperatorTable, trust: Ints) -> Floats:
    """(low, middle, high) factors of each row's family, wider where the ceilings are assumed; shape (3, rows)."""
    attention = (table.kind == Kind.ATTENTION) & (table.phase > 0)
    family = np.where(attention, len(Kind) - 1 + table.phase, table.kind)
    factors = _spreads()[:, family]
    widen = np.where(trust == Trust.DATASHEET, assumptions()["datasheet_widening"], 1.0)
    factors[0] /= widen
    factors[2] *= widen
    return factors


@cache
def _spreads() -> Floats:
    return np.array([assumptions()["spread"][family] for family in SPREADS]).T
