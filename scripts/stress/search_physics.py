"""Random operators of every kind, format, size and direction, on every calibration: does an answer leave physics?

    python scripts/stress/search_physics.py [COUNT]

COUNT operators of each kind (default 20,000). Prints, for each calibration and kind, how many are refused, the largest share of
the dense peak and of the datasheet's bandwidth that a lower bound reaches, and how wide the intervals are. Ends with 1 where
an answer lies outside. tests/hwdb/test_limits.py asks few of the same.
"""

import sys
from typing import Any

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.kernels.rates import rates
from tilewise.hwdb.kinds import KINDS, multiplies
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import (
    OP_CODES,
    OPS,
    VARIANTS,
    Kind,
    Label,
    Layout,
    OperatorTable,
    Phase,
    Residency,
    table_from_columns,
)
from tilewise.hwdb.times import State, Times

ROUNDING = 1e-9
BYTES = np.array([FORMATS[precision].bytes for precision in Precision])
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
TRAFFIC = [code for code, op in enumerate(OPS) if op and op not in (*COLLECTIVES, "fused_moe")]
UNITS = np.array([1, 2, 8, 16, 64, 256])  # sizes are whole multiples of one of these
Columns = dict[str, Any]


def main() -> int:
    count, found, outside = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, Database.packaged(), 0
    for name in found.skus():
        for id in found.calibrations(name) or ("",):
            gpu = found.gpu(name, id)
            table = asked(gpu.sku, 0, count)
            outside += _report(f"{name} {id or '(datasheet)'}", table, gpu.predict(table), gpu.sku)
    print(f"{outside} answers outside of physics")
    return outside > 0


def _report(name: str, table: OperatorTable, times: Times, sku: Sku) -> int:
    answered, used = ~times.refused, shares(table, times, sku)
    print(f"{name}: {times.refused.mean():.1%} refused")
    for kind, record in KINDS.items():
        rows = answered & (table.kind == kind)
        wide, (peak, memory) = times.high_s[rows] / np.maximum(times.low_s[rows], 1e-12), used[:, rows].max(axis=1)
        print(
            f"  {record.name:13s} of peak {peak:4.0%}, of bandwidth {memory:4.0%}; high over low: median {np.median(wide):5.2f}, "
            f"99 % {np.quantile(wide, 0.99):6.1f}, most {wide.max():6.1f}"
        )
    disordered = ~((times.low_s <= times.time_s) & (times.time_s <= times.high_s))
    return int((answered & (disordered | (used > 1 + ROUNDING).any(axis=0))).sum())


def shares(table: OperatorTable, times: Times, sku: Sku) -> Any:
    """What each lower bound reaches of the dense peak, and of the bandwidth by what cannot lie in the cache, shape (2, rows)."""
    peaks = rates(sku, State.BURST).compute_peak  # of a format without units of its own those that it runs on
    flops = np.where(multiplies(table), np.maximum(table.flops, table.executed_flops), 0.0)
    moved = np.where(table.kind == Kind.COLLECTIVE, 0.0, table.bytes_read + table.bytes_written)
    streamed = np.maximum(moved - sku.last_level_bytes, 0.0) / sku.hbm_bytes_per_s
    return np.stack([flops / peaks[table.precision], streamed]) / np.maximum(times.low_s, 1e-12)


def asked(sku: Sku, seed: int, count: int = 200) -> OperatorTable:
    """`count` operators of each kind, in formats that the GPU has; FLOPs and bytes as server/operators counts them."""
    some = np.random.default_rng(seed)
    have = np.flatnonzero(rates(sku, State.BURST).refusal < 0)
    makers = (_products, _experts, _attention, _traffic, _collectives)
    parts = [maker(some, have, count) for maker in makers]
    names = {name for part in parts for name in part}
    blank = {name: np.full(count, float(name in ("groups", "kernels"))) for name in names}
    columns = {name: np.concatenate([{**blank, **part}[name] for part in parts]) for name in names}
    return table_from_columns([Label(name="asked", layer="", part="")], 1, count * len(parts), columns)


def _sizes(some: np.random.Generator, low: int, high: int, count: int) -> Any:
    """log2-uniform between 2**low and 2**high, each a multiple of one of UNITS."""
    unit = some.choice(UNITS, count)
    return np.maximum(np.round(2 ** some.uniform(low, high, count) / unit), 1) * unit


def _products(some: np.random.Generator, have: Any, count: int) -> Columns:
    m, n, k = _sizes(some, 0, 21, count), _sizes(some, 0, 18, count), _sizes(some, 0, 18, count)
    precision, groups = some.choice(have, count), np.where(some.random(count) < 0.2, _sizes(some, 0, 8, count), 1.0)
    element, output = BYTES[precision], some.choice([2.0, 4.0], count)
    work = 2.0 * m * n * k * groups
    return {
        "kind": np.full(count, int(Kind.GEMM)), "layout": some.choice(list(Layout), count), "precision": precision, "m": m,
        "n": n, "k": k, "groups": groups, "output_bytes": output, "flops": work, "executed_flops": work,
        "bytes_read": groups * (m + n) * k * element, "bytes_written": groups * m * n * output,
    }  # fmt: skip


def _experts(some: np.random.Generator, have: Any, count: int) -> Columns:
    m, n, k = _sizes(some, 0, 20, count), _sizes(some, 5, 15, count), _sizes(some, 5, 15, count)
    groups, layout = some.uniform(1, 256, count), some.choice(list(Layout), count)
    gradient, precision = layout == Layout.WEIGHT_GRADIENT, some.choice(have, count)
    m, n, k = np.where(gradient, n, m), np.where(gradient, k, n), np.where(gradient, m, k)
    element, work = BYTES[precision], 2.0 * m * n * k
    read = np.where(gradient, k * (m + n), m * k + groups * n * k) * element
    return {
        "kind": np.full(count, int(Kind.GROUPED_GEMM)), "layout": layout, "precision": precision, "m": m, "n": n, "k": k,
        "groups": groups, "output_bytes": np.full(count, 2.0), "flops": work, "executed_flops": work, "bytes_read": read,
        "bytes_written": 2.0 * np.where(gradient, groups, 1) * m * n, "kernels": np.full(count, 2.0),
    }  # fmt: skip


def _attention(some: np.random.Generator, have: Any, count: int) -> Columns:
    phase, kv = some.choice(list(Phase), count), some.choice([1, 2, 8, 32], count)
    heads, wide = kv * some.choice([1, 4, 8], count), some.choice([32, 64, 80, 96, 128, 192, 256], count)
    decode, keys = phase == Phase.DECODE, np.round(_sizes(some, 3, 21, count))
    queries = np.where(decode, 1, keys)
    causal = np.where(decode, 0, some.integers(0, 2, count))
    batch = np.where(decode, some.choice([1, 8, 64, 256], count), some.choice([1, 2, 8], count))
    formats = [p for p in (Precision.BF16, Precision.FP16, Precision.FP8, Precision.FP32) if int(p) in have]
    precision = some.choice([int(p) for p in formats], count)
    width, pairs = BYTES[precision], queries * keys * np.where(causal, 0.5, 1.0)
    work, back = 4.0 * batch * heads * pairs * wide, phase == Phase.BACKWARD
    moved = batch * wide * (queries * heads + 2 * keys * kv) * width
    return {
        "kind": np.full(count, int(Kind.ATTENTION)), "phase": phase, "precision": precision, "batch": batch, "heads": heads,
        "kv_heads": kv, "head_dim": wide, "head_dim_v": wide, "seq_q": queries, "seq_kv": keys, "causal": causal,
        "flops": work * np.where(back, 2, 1), "executed_flops": work * np.where(back, 2.5, 1),
        "bytes_read": moved * np.where(back, 2, 1), "bytes_written": batch * heads * queries * wide * width,
        "special": batch * heads * pairs,
    }  # fmt: skip


def _traffic(some: np.random.Generator, have: Any, count: int) -> Columns:
    rows, cols, precision = _sizes(some, 0, 22, count), _sizes(some, 0, 18, count), some.choice(have, count)
    size = rows * cols * BYTES[precision]
    return {
        "kind": np.full(count, int(Kind.MEMORY)), "op": some.choice(TRAFFIC, count), "precision": precision, "rows": rows,
        "cols": cols, "variant": np.where(some.random(count) < 0.5, 0, some.integers(0, len(VARIANTS), count)),
        "residency": some.choice(list(Residency), count), "bytes_read": size, "bytes_written": size,
    }  # fmt: skip


def _collectives(some: np.random.Generator, have: Any, count: int) -> Columns:
    size = _sizes(some, 4, 33, count)
    return {
        "kind": np.full(count, int(Kind.COLLECTIVE)), "op": some.choice([OP_CODES[op] for op in COLLECTIVES], count),
        "message_bytes": size, "ranks": some.choice([2, 4, 8], count), "bytes_read": size, "bytes_written": size,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
