"""Attention by others' measurements: forward of whole causal sequences and decode, of serving engines mostly.

Rows over a latent cache (latent.py) are answered by software that was timed over one. Windows are in none of these tables: they
are widened and rest on the datasheet's word. The kernels of torch's own libraries are no engine's: they are carried over
from the sibling, whose own were measured, where that was seen to go less wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels import clock, transfer
from tilewise.hwdb.kernels.attention import choice, latent, short, window
from tilewise.hwdb.kernels.attention import published_work as attention_work
from tilewise.hwdb.kernels.learning import answers, regression, residual
from tilewise.hwdb.kernels.learning.opened import Opened
from tilewise.hwdb.kernels.learning.residual import Points
from tilewise.hwdb.kernels.software import Software
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import VARIANT_CODES, Floats, Ints, OperatorTable, Phase
from tilewise.hwdb.times import State, Times, Trust, merge

OTHERS = [VARIANT_CODES["flash"], VARIANT_CODES["math"]]
worker = attention_work.worker


def fit(points: Points) -> dict[str, Any]:
    """The model of published attention kernels.

    shortest: cached keys (of a forward: tokens) of the shortest sequence that each software was timed at
    """
    shortest = [points.table.seq_kv[points.software == one].min() for one in range(len(points.origins))]
    return {"law": "published.attention", "shortest": np.array(shortest), **residual.fit(points, worker)}


def predict(table: OperatorTable, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    """Times of attention rows: of a phase that was published here by its software, else carried over.

    A decode of torch is both: its own kernel from the sibling, and an engine's here, which is as fast where memory is the wall.
    """
    table = _as_torch(table, sku)
    mine, software = _carried(table, model, sku), chosen(table, model)
    both = mine & (table.phase == Phase.DECODE.value) & (software >= 0)
    software = np.where(mine & ~both, -1, software)
    known, other = np.flatnonzero(software >= 0), np.flatnonzero(software < 0)
    parts = [(known, _known(table.select(known), software[known], model, sku, state))] if len(known) else []
    if len(other):
        parts.append((other, transfer.predict(table.select(other), str(model["sibling"]), sku, state)))
    found = merge(len(table), parts)
    if both.any():
        rows, rest = np.flatnonzero(both), np.flatnonzero(~both)
        carried = transfer.predict(table.select(rows), str(model["sibling"]), sku, state)
        found = merge(len(table), [(rest, found.select(rest)), (rows, _between(found.select(rows), carried))])
    return answers.or_else(table, found, lambda rows: transfer.predict(rows, str(model["sibling"]), sku, state))


def _between(one: Times, other: Times) -> Times:
    """`one` with the time of both, each weighed by how sure it is of itself, as two independent measurements are."""
    half, others = (np.log(times.high_s / times.low_s) / 2 for times in (one, other))
    share = others**2 / (half**2 + others**2)
    time_s = one.time_s**share * other.time_s ** (1 - share)
    unsure = np.exp(np.hypot(share * half, (1 - share) * others))
    parts = {name: getattr(one, name) * time_s / one.time_s for name in transfer.SCALED}
    trust = np.minimum(one.trust, other.trust)
    return replace(one, **{**parts, "low_s": time_s / unsure, "high_s": time_s * unsure, "trust": trust})


def _as_torch(table: OperatorTable, sku: Sku) -> OperatorTable:
    """The rows with the library that torch takes first on this generation, where its sibling's first is another."""
    first = choice.facts()["first"].get(sku.generation, "cudnn")
    asked = (table.library == 0) & (table.variant == 0) & (table.phase == Phase.BACKWARD.value)
    return table if first == "cudnn" else replace(table, variant=np.where(asked, VARIANT_CODES[first], table.variant))


def _carried(table: OperatorTable, model: Mapping[str, Any], sku: Sku) -> NDArray[np.bool_]:
    """Rows that cuDNN runs under torch, of a generation that its kernels were timed on."""
    if not (model["sibling"] and transfer.knows("cudnn_forward", sku)):
        return np.zeros(len(table), bool)
    wide = np.isin(table.precision, (Precision.BF16, Precision.FP16)) & (
        table.head_dim <= choice.facts()["cudnn"]["widest"]
    )
    mine: NDArray[np.bool_] = wide & (table.library == 0) & (choice.backend(table) == choice.CUDNN)
    return mine


def chosen(table: OperatorTable, model: Mapping[str, Any]) -> Ints:
    """The software of each row; without one named, the usual one of its phase, in 16 bit unless the row is fp8.

    -1 for formats and backends of torch that are none of them (flash is FlashAttention 2 there): those are carried over.
    """
    found = table.library - 1
    number = np.where(table.precision == Precision.FP8.value, int(Precision.FP8), int(Precision.BF16))
    over_latent = latent.is_latent(table)
    for phase in Phase:
        for narrow in (False, True):
            rows = (table.library == 0) & (table.phase == phase) & (over_latent == narrow)
            found = np.where(rows, USUAL(model)[phase, narrow][number], found)
    other = (table.precision < Precision.BF16) | np.isin(table.variant, OTHERS)
    return np.where((table.library == 0) & other, -1, found)


def _usual(model: Mapping[str, Any]) -> dict[tuple[Phase, bool], Ints]:
    """By phase and whether the cache is latent: the usual origin of each Precision whose cache has its products' format."""
    software = Software.of(model, "attention")
    even = np.array([len(set(one.formats)) == 1 for one in software.origins], bool)
    phases, latents = software.column("phase"), software.column("latent")
    return {
        (phase, narrow): software.usual_of("attention", even & (phases == phase.name.lower()) & (latents == narrow))
        for phase in Phase for narrow in (False, True)
    }  # fmt: skip


USUAL = Opened(_usual)


def _as_run(table: OperatorTable, software: Ints, opened: Software) -> tuple[OperatorTable, Ints]:
    """What engines with one kernel for both phases make of a forward of a single token: a decode."""
    single = (table.phase == Phase.FORWARD.value) & (table.seq_q == 1) & (table.seq_kv == 1)
    decoded = np.where(single, opened.both_phases()[software], -1)
    phase = np.where(decoded >= 0, int(Phase.DECODE), table.phase)
    return replace(table, phase=phase), np.where(decoded >= 0, decoded, software)


def _known(table: OperatorTable, software: Ints, model: Mapping[str, Any], sku: Sku, state: State) -> Times:
    opened = residual.OPEN(model).software
    table, software = _as_run(table, software, opened)
    found, work, floor = short.answer(window.without(table), software, model, sku, worker)
    found = _streamed(found, attention_work.compulsory_s(table, opened, software, sku))
    odd, cut = _odd(table, opened.column("latent")[software]), window.cuts(table)
    trust = np.where(odd | cut, int(Trust.DATASHEET), int(Trust.PUBLISHED))
    unlike = np.where(odd, transfer.error("attention_forward", sku), 0.0) + np.where(cut, window.UNSURE, 0.0)
    times = answers.times(found, unlike + _engine(table, sku, found.time_s), work, floor, trust, software, model)
    return clock.settled(table, times, sku, state, opened.precision[software])


def _streamed(found: regression.Answer, least_s: Floats) -> regression.Answer:
    """The answer where no decode is faster than the memory: some published times were, and are dropped (IMPLAUSIBLE)."""
    time_s, high_s = np.maximum(found.time_s, least_s), np.maximum(found.high_s, least_s)
    return replace(found, time_s=time_s, high_s=high_s)


def _odd(table: OperatorTable, over_latent: Any) -> Any:
    """Rows of a kind that nobody timed: forwards that are not square and causal, values as wide as no software's."""
    forward = table.phase != Phase.DECODE.value
    return (forward & ((table.causal == 0) | (table.seq_q != table.seq_kv))) | (latent.is_latent(table) & ~over_latent)


def _engine(table: OperatorTable, sku: Sku, time_s: Floats) -> Floats:
    """What is added where nobody is named: torch's kernel is another than the engine's."""
    words, which = (
        ["engine_attention_decode", "engine_attention_forward"],
        (table.phase != Phase.DECODE.value).astype(np.int64),
    )
    added: Floats = np.where(table.library > 0, 0.0, transfer.unsure(words, which, sku, time_s))
    return added
