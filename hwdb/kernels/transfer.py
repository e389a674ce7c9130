"""Carry-over: an operator that nobody published for this GPU, from a measured sibling by the ratio of both rooflines.

time = sibling's fitted time x roofline here / roofline there; so too a format that was not measured, from one that was. How far
that goes wrong was measured where both sides are known (transfer.toml, made by scripts/research/measure_transfer.py); the
interval is widened by it, the trust is `datasheet`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tilewise.hwdb import packaged
from tilewise.hwdb.kernels import clock, roofline
from tilewise.hwdb.kernels.tiles import ELEMENT_BYTES
from tilewise.hwdb.kinds import KINDS
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Kind, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, merge

SCALED = ("time_s", "compute_s", "memory_s", "special_s", "launch_s", "padding_s", "wave_s", "alignment_s")


def predict(table: OperatorTable, sibling: str, sku: Sku, state: State, least: Trust = Trust.MEASURED) -> Times:
    """Times of rows of one kind, carried over from `sibling` (a SKU name; "" for none: the roofline answers).

    What the sibling refuses, or knows by less than `least`, is answered by the roofline here.
    """
    rough = roofline.predict(table, {}, sku, state)
    if not sibling or sibling == sku.name:
        return rough
    there = _there(sibling)
    fitted = there.predict(table, State.BURST)
    carried = ~fitted.refused & (fitted.trust >= least) & ~rough.refused
    rows, rest = np.flatnonzero(carried), np.flatnonzero(~carried)
    parts = [(rest, rough.select(rest))] if len(rest) else []
    if len(rows):
        some = table.select(rows)
        scaled = _scaled(some, _own(fitted.select(rows), rough.select(rows)), ratios(some, sku, there.sku), sku)
        if least < Trust.MEASURED:
            scaled = _possible(scaled, roofline.predict(some, {}, sku, State.BURST).low_s)
        parts.append((rows, clock.settled(some, scaled, sku, state)))
    return merge(len(table), parts)


def no_slower(table: OperatorTable, times: Times, sku: Sku, state: State) -> Times:
    """`times` of a GPU that has a slower sibling of the same dies, held to that one's.

    Tables that name the die alone stand behind both, and two fits to them differ by chance. Rows that name software keep their
    own: codes differ by model.
    """
    rows = np.flatnonzero(table.library == 0) if "slower_sibling" in sku.figures else np.zeros(0, np.int64)
    if not len(rows):
        return times
    there = _there(str(sku.figures["slower_sibling"].value)).predict(table.select(rows), state)
    bounds = {name: getattr(times, name).copy() for name in ("time_s", "low_s", "high_s")}
    for name in ("time_s", "low_s"):
        bounds[name][rows] = np.fmin(bounds[name][rows], getattr(there, name))
    return replace(times, **bounds)


def in_format(table: OperatorTable, measured: Callable[[OperatorTable], Times], sku: Sku, state: State) -> Times:
    """Times of products in a format that was not measured here, from `measured` ones in 16 bit by the ratio of both rooflines."""
    narrow = ELEMENT_BYTES[table.precision]
    twin = replace(
        table, precision=np.full(len(table), int(Precision.BF16)), bytes_read=table.bytes_read * 2.0 / narrow
    )
    rough, wide = (roofline.predict(rows, {}, sku, state) for rows in (table, twin))
    scaled = _scaled(table, measured(twin), rough.time_s / wide.time_s, sku)
    return replace(scaled, refusal=rough.refusal, refusals=rough.refusals)


def _own(fitted: Times, rough: Times) -> Times:
    """`fitted` without what the sibling alone has: its kernels' names, and waves over its SMs."""
    return replace(fitted, kernel=rough.kernel, kernel_names=(), tiles=rough.tiles, waves=rough.waves)


def _scaled(table: OperatorTable, fitted: Times, ratio: Floats, sku: Sku) -> Times:
    unsure = np.exp(np.array([error(word, sku) for word in words(table)]))
    return replace(
        fitted,
        **{name: getattr(fitted, name) * ratio for name in SCALED},
        low_s=fitted.low_s * ratio / unsure,
        high_s=fitted.high_s * ratio * unsure,
        trust=np.full(len(table), int(Trust.DATASHEET)),
    )


def _possible(times: Times, least_s: Floats) -> Times:
    """`times` with no bound below the roofline's own: what is carried from others' bursts knows no ceiling."""
    middle = np.maximum(times.time_s, least_s)
    return replace(
        times, time_s=middle, low_s=np.maximum(times.low_s, least_s), high_s=np.maximum(times.high_s, middle)
    )


def ratios(table: OperatorTable, sku: Sku, there: Sku) -> Floats:
    """Roofline time here over roofline time there, by row."""
    here = roofline.predict(table, {}, sku, State.BURST).time_s
    found: Floats = here / roofline.predict(table, {}, there, State.BURST).time_s
    return found


def words(table: OperatorTable) -> list[str]:
    """Which of the measured errors of a carry-over stands for each row."""
    return [
        spreads[phase % len(spreads)]
        for spreads, phase in (
            (KINDS[Kind(kind)].spreads, phase)
            for kind, phase in zip(table.kind.tolist(), table.phase.tolist(), strict=True)
        )
    ]


def error(word: str, sku: Sku) -> float:
    """What a carry-over to a SKU's generation adds to the half-width of log(time): 90 % of its errors, both sides known.

    Where they are known for no GPU of the generation, the largest of the others.
    """
    known: dict[str, float] = facts()["error"][word]
    return float(known.get(sku.generation, max(known.values())))


@cache
def facts() -> dict[str, Any]:
    return packaged.toml("tilewise.hwdb.kernels", "transfer.toml")


@cache
def _there(sibling: str) -> Any:
    from tilewise.hwdb.database import Database

    return Database.packaged().gpu(sibling)
