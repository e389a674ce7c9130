"""What physics allows: no answer is faster than dense peaks and bandwidths, none slower than the slowest kernel that is sensible.

Device memory has to deliver only what cannot lie in the cache in front of it; all traffic passes that cache's own paths.
The slow end is a kernel that multiplies in fp32 without matrix units, or at the format's own peak where that is lower (fp64 is
cut on some GPUs), one block a tile, and hides nothing; `slowest` in roofline.toml says how many times as long the slowest
measured ones took.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kernels import roofline
from tilewise.hwdb.kernels.rates import NONE, assumptions, rates
from tilewise.hwdb.kinds import KINDS, multiplies
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import OP_CODES, Floats, Kind, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, merge

CACHE_BYTES_PER_CLOCK = 64.0  # that an SM, or compute unit, reads from L2 (CUDA programming guide; CDNA3 white paper)
SMALLEST_S = 8e-7  # the smallest of 40,000 measured kernels on the H100 and H200 takes 0.81 us
WIDE = 4.0  # bytes of an element of fp32
CALL = 3.0  # smallest GEMMs that an engine's smallest attention takes (roofline.toml, attention_floor)
MATRICES = 3.0  # of a fused layer of experts


def held(table: OperatorTable, times: Times, sku: Sku, state: State) -> Times:
    """`times` with every value and bound between `least_s` and `most_s`; the roofline's where a value lies far outside.

    Such a value says that its model does not hold for the row: its interval would mean nothing either.
    """
    least, most = least_s(table, sku), most_s(table, sku)
    wrong = (times.time_s > most) | (times.time_s * assumptions()["datasheet_widening"] < least)
    if wrong.any():
        rows, rest = np.flatnonzero(wrong), np.flatnonzero(~wrong)
        rough = roofline.predict(table.select(rows), {}, sku, state)
        times = merge(len(table), [(rest, times.select(rest)), (rows, rough)])
    time = np.minimum(np.maximum(times.time_s, least), most)
    moved = time / np.where(times.time_s > 0, times.time_s, 1.0)  # with its interval
    low, high = (np.minimum(np.maximum(bound * moved, least), most) for bound in (times.low_s, times.high_s))
    return replace(times, time_s=time, low_s=low, high_s=high)


def least_s(table: OperatorTable, sku: Sku) -> Floats:
    """Seconds below which no kernel can take: at the dense peak, the datasheet's bandwidth and the cache's, or at all."""
    flops = np.where(multiplies(table), np.maximum(table.flops, table.executed_flops), 0.0)
    # of uneven groups, which only tables of measurements have, some may be empty: their matrices never move
    uneven = (table.kind == Kind.GROUPED_GEMM.value) & (table.op == 0) & (table.skew > 0)
    moved = np.where(uneven | (table.kind == Kind.COLLECTIVE.value), 0.0, table.bytes_read + table.bytes_written)
    work = flops / rates(sku, State.BURST).compute_peak[table.precision]
    memory = np.maximum(moved - sku.last_level_bytes, 0.0) / sku.hbm_bytes_per_s
    cache = moved / (CACHE_BYTES_PER_CLOCK * sku.sm_count * sku.clock_boost_hz)
    found: Floats = np.maximum.reduce([work, memory, cache, SMALLEST_S * np.minimum(table.kernels, 1.0) * (moved > 0)])
    return found


def most_s(table: OperatorTable, sku: Sku) -> Floats:
    """Seconds above which no sensible kernel takes, by sizes alone; endless for collectives, whose links may be any."""
    rule, blocks = assumptions()["slowest"], _blocks(table, assumptions()["slowest"]["tile"])
    peak = rates(sku, State.BURST).compute_peak[table.precision]
    peak = np.where(peak > NONE, np.minimum(peak, sku.peaks["fp32"].value), sku.peaks["fp32"].value)
    rate = peak * np.minimum(blocks / sku.sm_count, 1.0)
    work, moved = _work(table)
    calls = np.maximum(table.kernels, 1.0) * np.where(multiplies(table), CALL, 1.0)
    floor = rates(sku, State.BURST).floor_s * calls
    times = np.full(max(Kind) + 1, np.inf)
    times[list(KINDS)] = [rule.get(record.name, np.inf) for record in KINDS.values()]
    found: Floats = times[table.kind] * (work / rate + moved / sku.hbm_bytes_per_s + floor)
    return found


def from_memory(table: OperatorTable, times: Times, sku: Sku) -> Floats:
    """Bytes that device memory can have moved in a row's time; what was faster came from the cache in front of it."""
    found: Floats = np.minimum(table.bytes_read + table.bytes_written, times.time_s * sku.hbm_bytes_per_s)
    return found


def _work(table: OperatorTable) -> tuple[Floats, Floats]:
    """FLOPs of whole products and of every query-key pair, and bytes of operands in fp32."""
    m, n, k = (np.asarray(size, float) for size in (table.m, table.n, table.k))
    matrices = np.where(table.op == OP_CODES["fused_moe"], MATRICES, 1.0)
    products = np.where(table.kind == Kind.GEMM.value, table.groups, matrices)
    loaded = np.maximum(table.groups, 1.0) * matrices
    wide, keys = (table.head_dim + table.head_dim_v).astype(float), table.kv_heads * table.seq_kv.astype(float)
    queries = table.heads * table.seq_q.astype(float)
    work = 2 * m * n * k * products + 5.0 * table.batch * queries * table.seq_kv * wide  # a backward's five products
    operands = (m * k + n * k + m * n) * loaded + 4.0 * table.batch * (queries + keys) * wide
    traffic = table.kind == Kind.MEMORY.value
    return np.where(traffic, 0.0, work), np.where(traffic, table.bytes_read + table.bytes_written, WIDE * operands)


def _blocks(table: OperatorTable, tile: int) -> Floats:
    """Blocks of a kernel that cuts its output into square tiles and nothing else; of a decode one for every key head."""
    products = np.ceil(table.m / tile) * np.ceil(table.n / tile) * np.maximum(table.groups, 1.0)
    heads = table.batch * np.where(table.phase == Phase.DECODE.value, table.kv_heads, table.heads)
    found: Floats = np.where(table.kind == Kind.ATTENTION.value, heads * np.ceil(table.seq_q / tile), products)
    return np.maximum(found, 1.0)
