"""Attention by others' measurements: forward of whole causal sequences and decode, of serving engines mostly.

The backward was published for one GPU alone, windows for none in these tables: both are carried over from a sibling, or
widened, and rest on the datasheet's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.hwdb.kernels import regression
from tilewise.hwdb.kernels.published import answers, clock, latent, residual, transfer
from tilewise.hwdb.kernels.published import decode as decode_kernel
from tilewise.hwdb.kernels.published.chip import Chip
from tilewise.hwdb.kernels.published.residual import Points, Work
from tilewise.hwdb.kernels.published.software import Software, both_phases, cached_bytes
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import VARIANT_CODES, Floats, Ints, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, Trust, merge

QUERIES = 128  # rows of a tile over the queries: 128 on Hopper, a pair of 128 on Blackwell
KEYS = 512  # cached keys that a split of a decode keeps at least
OTHERS = [VARIANT_CODES["flash"], VARIANT_CODES["math"]]
WIDTH_CELLS = 5  # cells of distance per octave of head width: between 64, 128 and 256 other kernels run
OUTPUT = 2.0  # bytes of an element of queries and results
HEADS = 64  # query heads of a key-value head that a decode's tile takes: fewer take as long
TILE = 64  # cached keys of a decode's tile: fewer take as long
TRAFFIC = 0.5  # of what a decode's tile costs: its keys; the other half, products and latency, comes whole
SHORT, SHORT_SLOPE = 0.05, 0.25  # what is added to the half-width of log(time) of shorter sequences, and per log of the way
REREAD = 1 / 3  # of the memory's time for a key that another query head's block reads again, from L2


def worker(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Work:
    """Walls of matrix units, exponentials and traffic; blocks over the SMs."""
    table = latent.as_run(table, software.names, which)
    decode = table.phase == Phase.DECODE
    batch, heads, kv = (np.maximum(getattr(table, name), 1).astype(float) for name in ("batch", "heads", "kv_heads"))
    queries, keys = np.maximum(table.seq_q, 1).astype(float), np.maximum(table.seq_kv, 1).astype(float)
    reach = np.where(table.window > 0, np.minimum(table.window, keys), keys)
    causal = np.where((table.causal > 0) & ~decode & (table.window == 0), 0.5, 1.0)
    pairs = batch * heads * queries * reach * causal
    widths = (table.head_dim + table.head_dim_v).astype(float)
    backward = table.phase == Phase.BACKWARD
    expanded = latent.is_latent(table) & ~decode & (table.kv_heads > 1)  # keys come from a projection, not from the cache
    stored = np.where(expanded, OUTPUT, np.array([cached_bytes(name) for name in software.names])[which])
    masked = _masked(table, chip, which, software)
    again = np.where(masked, 1 + REREAD * (heads / kv - 1), 1.0)
    cache = reach_of_cache(decode, reach, keys) * kv * widths * stored
    moved = batch * (cache * again + queries * heads * widths * OUTPUT)
    tiles = np.ceil(heads / kv / HEADS)
    blocks = np.where(decode, batch * np.where(masked, heads, kv * tiles), batch * heads * np.ceil(queries / QUERIES))
    waves = np.ceil(blocks / chip.sms)
    alone = decode_kernel.unsplit(table, chip, software.names, which)
    share = np.where(alone, waves * chip.sms / blocks, 1.0)  # a block that is alone has one SM and its share of the memory
    moved = moved * share
    idle = np.minimum(waves * chip.sms / blocks, 8.0)
    uneven = np.where(decode, 1.0, np.ceil(queries / QUERIES) * QUERIES / queries)
    matrix = 2 * pairs * widths * np.where(backward, 2.5, 1.0) / chip.at(software.precision[which])
    packed = matrix * share * tiles * HEADS * kv / heads  # rows of a decode's tile are query heads
    compute = np.where(decode, packed, np.maximum(matrix * uneven * idle, pairs / chip.special))
    log = np.log2
    columns = [
        log(batch), log(heads), log(kv), log(widths), log(queries), log(keys), log(reach), log(heads / kv), idle,
        log(np.clip(blocks / chip.sms, 1 / 256, 64)), log(np.clip(batch * heads / chip.sms, 1 / 256, 64)),
        np.minimum(np.ceil(batch * heads / chip.sms) * chip.sms / (batch * heads), 8),
        np.minimum(np.ceil(batch * kv / chip.sms) * chip.sms / (batch * kv), 8),
        log(np.clip(batch * kv * np.ceil(keys / KEYS) / chip.sms, 1 / 256, 64)), log(pairs / chip.special * 1e6),
        queries % QUERIES > 0, alone, np.where(masked, np.minimum(waves, 8), 0), masked, np.where(masked, log(heads / kv), 0),
        np.where(masked, log(keys), 0), decode, backward, stored, causal, latent.is_latent(table),
        software.precision[which] == Precision.FP8,
    ]  # fmt: skip
    place = np.stack([log(batch) / 2, log(heads * queries) / 2, log(keys), WIDTH_CELLS * log(widths)], 1)
    return Work(compute, moved / chip.hbm, columns, place, blocks, waves)


def _masked(table: OperatorTable, chip: Chip, which: Ints, software: Software) -> Any:
    """Decodes that TensorRT-LLM gives to its kernel without tiles."""
    stored = np.array([cached_bytes(name) for name in software.names])[which]
    ours = (table.phase == Phase.DECODE) & decode_kernel.runs(software.names)[which]
    return decode_kernel.masked(table, chip, ours, stored)


def reach_of_cache(decode: Any, reach: Any, keys: Any) -> Any:
    """Keys that are read: of a decode those in reach, of a forward all."""
    return np.where(decode, reach, keys)


def fit(points: Points) -> dict[str, Any]:
    """The model of published attention kernels; each software name starts with its phase.

    shortest: cached keys (of a forward: tokens) of the shortest sequence that each software was timed at
    """
    shortest = [points.table.seq_kv[points.software == one].min() for one in range(len(points.names))]
    return {"law": "published.attention", "shortest": np.array(shortest), **residual.fit(points, worker)}


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


def _answer(
    table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku
) -> tuple[regression.Answer, Work, Floats]:
    """As residual.answer; of sequences shorter than every timed one by the line through the two shortest.

    A kernel's time is linear in its keys there: a constant part, and one for each key. The nets know nothing of it, the
    law has the launch alone.
    """
    shortest = np.broadcast_to(np.asarray(model.get("shortest", 0)), len(model["software"]))[software]
    square = (table.phase == Phase.DECODE) | (table.seq_q == table.seq_kv)
    short = np.flatnonzero(square & (table.seq_kv < shortest))
    if not len(short):
        return residual.answer(table, software, model, sku, worker)
    some, which, least = table.select(short), software[short], shortest[short]
    near, _, _ = residual.answer(_as_long(table, short, least), software, model, sku, worker)
    twice, _, _ = residual.answer(_as_long(some, slice(None), 2 * least), which, model, sku, worker)
    _, work, floor = residual.answer(table, software, model, sku, worker)
    decode = some.phase == Phase.DECODE
    keys = np.where(decode, np.maximum(some.seq_kv, TILE), some.seq_kv)
    first = near.time_s[short]
    slope = np.maximum(twice.time_s - first, 0) * (1 - keys / least) * np.where(decode, TRAFFIC, 1.0)
    time = near.time_s.copy()
    time[short] = np.maximum(first - slope, np.minimum(floor[short], first))
    return _moved(near, time, short), work, floor


def _as_long(table: OperatorTable, rows: Any, keys: Ints) -> OperatorTable:
    """The table with other lengths in `rows`: of a decode the cached keys, of a forward the tokens."""
    seq_kv, seq_q = table.seq_kv.copy(), table.seq_q.copy()
    seq_kv[rows] = keys
    seq_q[rows] = np.where(table.phase[rows] == Phase.DECODE, seq_q[rows], keys)
    return replace(table, seq_q=seq_q, seq_kv=seq_kv)


def _moved(near: regression.Answer, time_s: Floats, rows: Ints) -> regression.Answer:
    """An answer whose `rows` got other times: their intervals grow by a share of the way."""
    unsure = np.zeros(len(time_s))
    unsure[rows] = SHORT + SHORT_SLOPE * np.log(near.time_s[rows] / time_s[rows])
    ratio = time_s / near.time_s
    return regression.Answer(
        time_s, near.low_s * ratio * np.exp(-unsure), near.high_s * ratio * np.exp(unsure), near.distance
    )


def _as_run(table: OperatorTable, software: Ints, model: Mapping[str, Any]) -> tuple[OperatorTable, Ints]:
    """What engines with one kernel for both phases make of a forward of a single token: a decode."""
    names = [str(one["name"]) for one in model["software"]]
    single = (table.phase == Phase.FORWARD) & (table.seq_q == 1) & (table.seq_kv == 1)
    decoded = np.where(single, both_phases(names)[software], -1)
    if not (decoded >= 0).any():
        return table, software
    return replace(table, phase=np.where(decoded >= 0, int(Phase.DECODE), table.phase)), np.where(decoded >= 0, decoded, software)


def _known(table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    table, software = _as_run(table, software, model)
    found, work, floor = _answer(table, software, model, sku)
    strange = (
        (table.window > 0)
        | ((table.causal == 0) & (table.phase != Phase.DECODE))
        | ((table.seq_q != table.seq_kv) & (table.phase != Phase.DECODE))
    )
    names = residual.OPEN(model).software.names
    odd = strange | (latent.is_latent(table) & ~latent.named(names)[software])
    trust = np.where(odd, int(Trust.DATASHEET), int(Trust.PUBLISHED))
    widened = np.where(odd, transfer.error("attention_forward", sku), 0.0)
    engine = np.where(
        table.phase == Phase.DECODE, *(transfer.error(f"engine_attention_{w}", sku) for w in ("decode", "forward"))
    )
    widened = widened + np.where(table.library == 0, engine, 0.0)  # torch's kernel is another than the engine's
    times = answers.times(found, widened, work, floor, trust, software, model)
    return clock.settled(table, times, sku, state, residual.OPEN(model).software.precision[software])
