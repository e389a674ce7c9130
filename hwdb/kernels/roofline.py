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
from tilewise.hwdb.kinds import by_code, multiplies, tiled
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, Ints, Kind, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, Trust, Wall

COPY = OP_CODES["copy"]
SCALED = np.array([bool(precision >= Precision.FP8) for precision in Precision])
Mask = NDArray[np.bool_]


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of every row, of any kind; `model` is not used, the roofline has none.

    A row whose precision the GPU lacks is refused: NaN times and a reason that names what the GPU has. No kernel was fitted, so
    the trust is `datasheet` whoever measured a ceiling.
    """
    rate, work, quantised = rates(sku, state), Work.of(table), quantisation(table, sku)
    walls, lost = _walls(work, rate, quantised)
    low, middle, high = _spread(work, quantised, _of_ceilings(work, rate), sku.generation)
    refusal = np.where(work.units, rate.refusal[table.precision], -1)
    base = np.maximum(walls[: Wall.LAUNCH].max(axis=0), walls[Wall.COMMUNICATION]) + walls[Wall.LAUNCH]
    base = np.where(refusal >= 0, np.nan, base)
    time = base * middle
    wall = walls.argmax(axis=0)
    padding, wave, alignment = np.where(wall == Wall.COMPUTE.value, lost * middle, 0.0)
    return Times(
        time_s=time,
        low_s=base * low,
        high_s=base * high,
        compute_s=walls[Wall.COMPUTE],
        memory_s=walls[Wall.MEMORY],
        special_s=walls[Wall.SPECIAL_FUNCTION],
        launch_s=walls[Wall.LAUNCH],
        padding_s=padding,
        wave_s=wave,
        alignment_s=alignment,
        wall=np.where(work.collective, Wall.COMMUNICATION, wall),
        trust=np.full(len(table), int(Trust.DATASHEET)),
        distance=np.full(len(table), np.nan),
        kernel=np.full(len(table), -1),
        tiles=np.where(work.matrix, quantised.tiles, 0.0),
        waves=np.where(work.matrix, quantised.waves, 0.0),
        refusal=refusal,
        refusals=rate.refusals,
    )


class Work(Record):
    """A table's rows by what they use, and how much of it.

    matrix: products cut into tiles; units: all that runs on the matrix units; memory, collective: the kinds of that name
    flops:  executed FLOPs on the units; bytes_moved: to and from device memory
    """

    table: OperatorTable
    matrix: Mask
    units: Mask
    memory: Mask
    collective: Mask
    flops: Floats
    bytes_moved: Floats

    @staticmethod
    def of(table: OperatorTable) -> Work:
        matrix, units = tiled(table), multiplies(table)
        collective = table.kind == Kind.COLLECTIVE.value
        flops = np.where(units, np.maximum(table.flops, table.executed_flops), 0.0)
        bytes_moved = np.where(collective, 0.0, table.bytes_read + table.bytes_written)
        return Work(table, matrix, units, table.kind == Kind.MEMORY.value, collective, flops, bytes_moved)


def _walls(work: Work, rate: Rates, quantised: Quantisation) -> tuple[Floats, Floats]:
    """Seconds on each Wall, shape (5, rows); and of the compute wall what padding, waves and alignment cost, (3, rows)."""
    table, share = work.table, assumptions()["share"]
    ideal = work.flops / (rate.compute[table.precision] * np.where(work.matrix, 1.0, share["attention_compute"]))
    lost = _lost(work, ideal, quantised)
    kernels = np.maximum(table.kernels, np.where(work.units & ~work.matrix, share["attention_floor"], 1.0))
    walls = np.zeros((len(Wall), len(table)))
    walls[Wall.COMPUTE] = ideal + lost.sum(axis=0)
    walls[Wall.MEMORY] = _memory(work, rate)
    walls[Wall.SPECIAL_FUNCTION] = table.special / rate.special
    walls[Wall.LAUNCH] = np.where(work.memory, share["memory_floor_s"], rate.floor_s) * kernels
    walls[:, work.collective] = _collective(table, work.collective, rate)
    return walls, lost


def _lost(work: Work, ideal: Floats, quantised: Quantisation) -> Floats:
    padded = ideal * quantised.padding
    waved = padded * quantised.wave
    steps = np.stack([padded - ideal, waved - padded, waved * (quantised.alignment - 1)])
    tiled = work.matrix & (work.table.precision > Precision.FP32)  # vector kernels come in all sizes, down to one row
    return np.where(tiled, steps, 0.0)


def _memory(work: Work, rate: Rates) -> Floats:
    """Seconds of memory traffic.

    A memory-bound kernel that fits the cache finds its input there, as the last kernel left it; one that does not fit
    takes no less than one that just does (on Blackwell small kernels are slower than HBM).
    """
    from_hbm = work.bytes_moved / rate.hbm
    from_cache = np.minimum(work.bytes_moved, rate.cache_bytes) / rate.cache
    fits = work.bytes_moved <= rate.cache_bytes
    return np.where(work.memory, np.where(fits, from_cache, np.maximum(from_hbm, from_cache)), from_hbm)


def _collective(table: OperatorTable, rows: Mask, rate: Rates) -> Floats:
    """Walls of collectives: latency by the number of ranks as launch, bus bytes over bus bandwidth as communication.

    Bus bytes per message byte among n ranks: 2 (n - 1) / n for all_reduce, (n - 1) / n for the other collectives, 1 for
    send_recv (nccl-tests, doc/PERFORMANCE.md).
    """
    op, ranks = table.op[rows], np.maximum(table.ranks[rows], 1)
    reduces = op == OP_CODES["all_reduce"]
    bus_bytes = np.where(op == OP_CODES["send_recv"], 1.0, (ranks - 1) / ranks * np.where(reduces, 2.0, 1.0))
    bus = rate.bus * np.where(reduces, 1.0, assumptions()["share"]["other_collectives_bus"])
    walls = np.zeros((len(Wall), len(ranks)))
    walls[Wall.LAUNCH] = np.where(ranks > 1, rate.base_s + rate.hop_s * (ranks - 1), 0.0)
    walls[Wall.COMMUNICATION] = np.where(ranks > 1, table.message_bytes[rows] * bus_bytes / bus, 0.0)
    return walls


def _of_ceilings(work: Work, rate: Rates) -> Ints:
    """Trust in the ceilings that a row is held against."""
    units = np.minimum(rate.compute_trust[work.table.precision], rate.memory_trust)
    rest = np.where(work.collective, rate.collective_trust, rate.memory_trust)
    return np.where(work.units, units, rest)


def _spread(work: Work, quantised: Quantisation, trust: Ints, generation: str) -> Floats:
    """(low, middle, high) factors of each row's family, wider where more is assumed; shape (3, rows)."""
    table, rules = work.table, assumptions()
    place, known = _places()
    family = place[table.kind, np.minimum(table.phase, len(Phase) - 1)]
    family = np.where((table.kind == Kind.GEMM.value) & SCALED[table.precision], known["gemm_scaled"], family)
    family = np.where((table.kind == Kind.MEMORY.value) & (table.op == COPY), known["stream"], family)
    family = np.where(table.unknown, known["unknown"], family)
    factors = np.array(list(rules["spread"].values()), float).T[:, family]
    assumed = np.where(trust == Trust.DATASHEET.value, rules["datasheet_widening"], 1.0)
    misaligned = np.where(work.matrix & (quantised.alignment > 1), rules["alignment"]["widening"], 1.0)
    factors[0] /= assumed
    slower = np.where(table.kind == Kind.ATTENTION.value, rules["slower_attention"].get(generation, 1.0), 1.0)
    factors[2] *= assumed * misaligned * slower
    return factors


@cache
def _places() -> tuple[Ints, dict[str, int]]:
    """Which of roofline.toml's spreads stands for a kind (first index) in a phase (second); and the place of each by name.

    Besides those of kinds there are some of formats that need scales, of plain copies and of what has no name.
    """
    known = {name: at for at, name in enumerate(assumptions()["spread"])}
    of_kind = by_code(lambda record: [known[record.spreads[phase % len(record.spreads)]] for phase in Phase])
    return of_kind, known
