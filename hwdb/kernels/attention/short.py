"""Attention over sequences shorter than every one that was timed: the line through the two shortest.

A kernel's time is linear in its keys there, a constant part and one for each key. The nets know nothing of it, and the law
has the launch alone as its constant part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.kernels.attention import decode
from tilewise.hwdb.kernels.learning import regression, residual
from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.learning.residual import Work, Worker
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, OperatorTable, Phase

TILE = 64  # cached keys of a decode's tile: fewer take as long
TRAFFIC = 0.5  # of what a decode's tile costs is its keys' traffic; the rest, products and latency, comes whole
UNSURE, UNSURE_SLOPE = 0.1, 0.25  # added to the half-width of log(time), and per log of the way from the timed


def answer(
    table: OperatorTable, software: Ints, model: Any, sku: Sku, worker: Worker
) -> tuple[regression.Answer, Work, Floats]:
    """As residual.answer. model["shortest"]: cached keys, of a forward tokens, of each software's shortest sequence."""
    least = np.asarray(model.get("shortest", np.zeros(len(model["software"]), np.int64)))[software]
    square = (table.phase == Phase.DECODE.value) | (table.seq_q == table.seq_kv)
    rows = np.flatnonzero(square & (table.seq_kv < least))
    found, work, floor = residual.answer(table, software, model, sku, worker)
    if not len(rows):
        return found, work, floor
    some, which, least = table.select(rows), software[rows], least[rows]
    near, _, _ = residual.answer(_lasting(some, least), which, model, sku, worker)
    twice, _, _ = residual.answer(_lasting(some, 2 * least), which, model, sku, worker)
    steep = np.maximum(twice.time_s - near.time_s, 0) * np.where(some.phase == Phase.DECODE.value, TRAFFIC, 1.0)
    time_s = near.time_s - steep * (1 - _counted(some, which, model, sku) / least)
    return _put(found, near, np.maximum(time_s, np.minimum(floor[rows], near.time_s)), rows), work, floor


def _counted(table: OperatorTable, which: Ints, model: Any, sku: Sku) -> Ints:
    """Keys that a kernel works on: a decode in tiles takes a whole one."""
    software = residual.OPEN(model).software
    tiled = (table.phase == Phase.DECODE.value) & ~decode.masked(
        table, Chip.one(sku, model, len(table)), software, which
    )
    counted: Ints = np.where(tiled, np.maximum(table.seq_kv, TILE), table.seq_kv)
    return counted


def _lasting(table: OperatorTable, keys: Ints) -> OperatorTable:
    """The rows with other lengths: of a decode the cached keys, of a forward the tokens."""
    return replace(table, seq_kv=keys, seq_q=np.where(table.phase == Phase.DECODE.value, table.seq_q, keys))


def _put(found: regression.Answer, near: regression.Answer, time_s: Floats, rows: Ints) -> regression.Answer:
    """`found` with these times in `rows`: the interval of the shortest timed sequence, wider by a share of the way."""
    way = time_s / near.time_s
    unsure = np.exp(UNSURE - UNSURE_SLOPE * np.log(way))
    mine = (time_s, near.low_s * way / unsure, near.high_s * way * unsure, near.distance)
    whole = [values.copy() for values in (found.time_s, found.low_s, found.high_s, found.distance)]
    for values, new in zip(whole, mine, strict=True):
        values[rows] = new
    return regression.Answer(*whole)
