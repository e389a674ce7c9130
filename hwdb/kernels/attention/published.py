"""Attention by others' measurements: forward of whole causal sequences and decode, of serving engines mostly.

Rows over a latent cache (latent.py) are answered by software that was timed over one. The backward was published for one GPU
alone, windows for none in these tables: both are carried over from a sibling, or widened, and rest on the datasheet's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.hwdb.kernels import clock, transfer
from tilewise.hwdb.kernels.attention import latent, short, window
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
    found = table.library - 1
    number = np.where(table.precision == Precision.FP8, int(Precision.FP8), int(Precision.BF16))
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
    single = (table.phase == Phase.FORWARD) & (table.seq_q == 1) & (table.seq_kv == 1)
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
    times = answers.times(found, unlike + _engine(table, sku), work, floor, trust, software, model)
    return clock.settled(table, times, sku, state, opened.precision[software])


def _streamed(found: regression.Answer, least_s: Floats) -> regression.Answer:
    """The answer where no decode is faster than the memory: some published times were, and are dropped (IMPLAUSIBLE)."""
    time_s, high_s = np.maximum(found.time_s, least_s), np.maximum(found.high_s, least_s)
    return replace(found, time_s=time_s, high_s=high_s)


def _odd(table: OperatorTable, over_latent: Any) -> Any:
    """Rows of a kind that nobody timed: forwards that are not square and causal, values as wide as no software's."""
    forward = table.phase != Phase.DECODE
    return (forward & ((table.causal == 0) | (table.seq_q != table.seq_kv))) | (latent.is_latent(table) & ~over_latent)


def _engine(table: OperatorTable, sku: Sku) -> Floats:
    """What is added where nobody is named: torch's kernel is another than the engine's."""
    decode, forward = (transfer.error(f"engine_attention_{word}", sku) for word in ("decode", "forward"))
    added: Floats = np.where(table.library > 0, 0.0, np.where(table.phase == Phase.DECODE, decode, forward))
    return added
