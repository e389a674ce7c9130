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
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, Ints, Kind, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall

SPREADS = (  # Kind, with attention split by Phase
    *("gemm", "grouped_gemm", "attention_forward", "memory", "collective"),
    *("attention_backward", "attention_decode", "gemm_scaled"),
)
SCALED = np.array([bool(precision >= Precision.FP8) for precision in Precision])  # formats that need scale factors


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of every row, of any kind; `model` is not used, the roofline has none.

    A row whose precision the GPU lacks is refused: NaN times and a reason that names what the GPU has.
    """
    rate = rates(sku, state)
    matrix = (table.kind == Kind.GEMM) | (table.kind == Kind.GROUPED_GEMM)
    quantised = quantisation(table, sku)
    units = matrix | (table.kind == Kind.ATTENTION)
    flops = np.where(units, np.maximum(table.flops, table.executed_flops), 0.0)
    share = assumptions()["share"]
    ideal = flops / (rate.compute[table.precision] * np.where(matrix, 1.0, share["attention_compute"]))
    lost = _losses(ideal, quantised, matrix)
    collective = table.kind == Kind.COLLECTIVE
    bytes_moved = np.where(collective, 0.0, table.bytes_read + table.bytes_written)
    cached = (table.kind == Kind.MEMORY) & (bytes_moved <= rate.l2_capacity)
    walls = np.stack(
        [
            ideal + lost.sum(axis=0),
            bytes_moved / np.where(cached, rate.l2, rate.hbm),
            table.special / rate.special,
            rate.floor_s * np.maximum(table.kernels, np.where(units & ~matrix, share["attention_floor"], 1.0)),
            np.zeros(len(table)),
        ]
    )
    walls[:, collective] = _collective(table, collective, rate)
    least = np.maximum(
        flops / rate.compute_peak[table.precision],
        bytes_moved / np.where(cached, max(rate.l2, rate.hbm_peak), rate.hbm_peak),
    )
    return _times(table, rate, walls, least, lost, quantised, matrix)


def _losses(ideal: Floats, quantised: Quantisation, matrix: NDArray[np.bool_]) -> Floats:
    """Seconds that padding, waves and alignment add to the compute wall; shape (3, rows)."""
    padded = ideal * quantised.padding
    waved = padded * quantised.wave
    steps = np.stack([padded - ideal, waved - padded, waved * (quantised.alignment - 1)])
    return np.where(matrix, steps, 0.0)


def _collective(table: OperatorTable, rows: NDArray[np.bool_], rate: Rates) -> Floats:
    """Walls of collectives: latency by the number of ranks as launch, bus bytes over bus bandwidth as communication.

    Bus bytes per message byte among n ranks: 2 (n - 1) / n for all_reduce, (n - 1) / n for the other collectives, 1 for
    send_recv (nccl-tests, doc/PERFORMANCE.md).
    """
    share = assumptions()["share"]
    op, ranks = table.op[rows], np.maximum(table.ranks[rows], 1)
    reduces = op == OP_CODES["all_reduce"]
    bus_bytes = np.where(op == OP_CODES["send_recv"], 1.0, (ranks - 1) / ranks * np.where(reduces, 2.0, 1.0))
    bus = rate.bus * np.where(reduces, 1.0, share["other_collectives_bus"])
    walls = np.zeros((len(Wall), len(ranks)))
    walls[Wall.LAUNCH] = np.where(ranks > 1, rate.base_s + rate.hop_s * (ranks - 1), 0.0)
    walls[Wall.COMMUNICATION] = np.where(ranks > 1, table.message_bytes[rows] * bus_bytes / bus, 0.0)
    return walls


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
    family = np.where((table.kind == Kind.GEMM) & SCALED[table.precision], len(SPREADS) - 1, family)
    factors = _spreads()[:, family]
    widen = np.where(trust == Trust.DATASHEET, assumptions()["widening"]["datasheet"], 1.0)
    factors[0] /= widen
    factors[2] *= widen
    return factors


@cache
def _spreads() -> Floats:
    return np.array([assumptions()["spread"][family] for family in SPREADS], float).T
