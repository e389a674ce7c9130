"""Attention by others' measurements: forward of whole causal sequences and decode, of serving engines mostly.

The backward was published for one GPU alone, windows for none in these tables: both are carried over from a sibling, or
widened, and rest on the datasheet's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewise.hwdb.kernels.published import answers, clock, residual, transfer
from tilewise.hwdb.kernels.published.chip import Chip
from tilewise.hwdb.kernels.published.residual import Points, Work
from tilewise.hwdb.kernels.published.software import Software, cached_bytes
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import VARIANT_CODES, Ints, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, Trust, merge

QUERIES = 128  # rows of a tile over the queries: 128 on Hopper, a pair of 128 on Blackwell
KEYS = 512  # cached keys that a split of a decode keeps at least
OTHERS = [VARIANT_CODES["flash"], VARIANT_CODES["math"]]
WIDTH_CELLS = 5  # cells of distance per octave of head width: between 64, 128 and 256 other kernels run
OUTPUT = 2.0  # bytes of an element of queries and results


def worker(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Work:
    """Walls of matrix units, exponentials and traffic; blocks over the SMs."""
    decode = table.phase == Phase.DECODE
    batch, heads, kv = (np.maximum(getattr(table, name), 1).astype(float) for name in ("batch", "heads", "kv_heads"))
    queries, keys = np.maximum(table.seq_q, 1).astype(float), np.maximum(table.seq_kv, 1).astype(float)
    reach = np.where(table.window > 0, np.minimum(table.window, keys), keys)
    share = np.where((table.causal > 0) & ~decode & (table.window == 0), 0.5, 1.0)
    pairs = batch * heads * queries * reach * share
    widths = (table.head_dim + table.head_dim_v).astype(float)
    backward = table.phase == Phase.BACKWARD
    stored = np.array([cached_bytes(name) for name in software.names])[which]
    moved = batch * (reach_of_cache(decode, reach, keys) * kv * widths * stored + queries * heads * widths * OUTPUT)
    blocks = np.where(decode, batch * kv, batch * heads * np.ceil(queries / QUERIES))
    waves = np.ceil(blocks / chip.sms)
    idle = np.minimum(waves * chip.sms / blocks, 8.0)
    uneven = np.where(decode, 1.0, np.ceil(queries / QUERIES) * QUERIES / queries)
    matrix = 2 * pairs * widths * np.where(backward, 2.5, 1.0) / chip.at(software.precision[which])
    compute = np.where(decode, matrix, np.maximum(matrix * uneven * idle, pairs / chip.special))
    log = np.log2
    columns = [
        log(batch), log(heads), log(kv), log(widths), log(queries), log(keys), log(reach), log(heads / kv), idle,
        log(np.clip(blocks / chip.sms, 1 / 256, 64)), log(np.clip(batch * heads / chip.sms, 1 / 256, 64)),
        np.minimum(np.ceil(batch * heads / chip.sms) * chip.sms / (batch * heads), 8),
        np.minimum(np.ceil(batch * kv / chip.sms) * chip.sms / (batch * kv), 8),
        log(np.clip(batch * kv * np.ceil(keys / KEYS) / chip.sms, 1 / 256, 64)), log(pairs / chip.special * 1e6),
        queries % QUERIES > 0, decode, backward, stored, share, software.precision[which] == Precision.FP8,
    ]  # fmt: skip
    place = np.stack([log(batch) / 2, log(heads * queries) / 2, log(keys), WIDTH_CELLS * log(widths)], 1)
    return Work(compute, moved / chip.hbm, columns, place, blocks, waves)


def reach_of_cache(decode: Any, reach: Any, keys: Any) -> Any:
    """Keys that are read: of a decode those in reach, of a forward all."""
    return np.where(decode, reach, keys)


def fit(points: Points) -> dict[str, Any]:
    """The model of published attention kernels; each software name starts with its phase."""
    return {"law": "published.attention", **residual.fit(points, worker)}


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of attention rows: of a phase that was published here by its software, else carried over."""
    software = chosen(table, model)
    known, other = np.flatnonzero(software >= 0), np.flatnonzero(software < 0)
    parts = [(known, _known(table.select(known), software[known], model, sku, state))] if len(known) else []
    if len(other):
        parts.append((other, transfer.predict(table.select(other), str(model["sibling"]), sku, state)))
    found = merge(len(table), parts)
    return answers.or_else(table, found, lambda rows: transfer.predict(rows, str(model["sibling"]), sku, state))


def chosen(table: OperatorTable, model: Mapping[str, Any]) -> Ints:
    """The software of each row; without one named, the usual one of its phase, in 16 bit unless the row is fp8.

    -1 for formats and backends of torch that are none of them (flash is FlashAttention 2 there): those are carried over.
    """
    found, number = (
        table.library - 1,
        np.where(table.precision == Precision.FP8, int(Precision.FP8), int(Precision.BF16)),
    )
    for phase in Phase:
        usual = _usual(model, phase)
        found = np.where((table.library == 0) & (table.phase == phase), usual[number], found)
    other = (table.precision < Precision.BF16) | np.isin(table.variant, OTHERS)
    return np.where((table.library == 0) & other, -1, found)


def _usual(model: Mapping[str, Any], phase: Phase) -> Ints:
    """By Precision: the usual software of a phase whose cache has the format of its products, -1 without one."""
    entries = list(model["software"])
    mine = [
        at for at, one in enumerate(entries) if str(one["name"]).startswith(phase.name.lower()) and _even(one["name"])
    ]
    listed = Software.of({"software": [entries[at] for at in mine]}, "attention").usual
    return np.where(listed >= 0, np.array([*mine, 0])[listed], -1)


def _even(name: str) -> bool:
    first, _, second = name.rpartition(", ")[2].partition("/")
    return first == second


def _known(table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    found, work, floor = residual.answer(table, software, model, sku, worker)
    strange = (
        (table.window > 0)
        | ((table.causal == 0) & (table.phase != Phase.DECODE))
        | ((table.seq_q != table.seq_kv) & (table.phase != Phase.DECODE))
    )
    odd = strange | (table.head_dim != table.head_dim_v)
    trust = np.where(odd, int(Trust.DATASHEET), int(Trust.PUBLISHED))
    widened = np.where(odd, transfer.error("attention_forward", sku), 0.0)
    engine = np.where(
        table.phase == Phase.DECODE, *(transfer.error(f"engine_attention_{w}", sku) for w in ("decode", "forward"))
    )
    widened = widened + np.where(table.library == 0, engine, 0.0)  # torch's kernel is another than the engine's
    times = answers.times(found, widened, work, floor, trust, software, model)
    return clock.settled(table, times, sku, state, residual.OPEN(model).software.precision[software])
