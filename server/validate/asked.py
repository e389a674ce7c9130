"""What the rows of a measured table ask of the operator models, and their answers summed by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import COLUMNS, Floats, Ints, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Wall
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.step.intervals import bounds
from tilewise.server.validate.rules import times
from tilewise.server.validate.sheet import Sheet, Words

Part = tuple[OperatorTable, Ints]


class Asked(Record, kw_only=True):
    """table: operators of all rows that can be asked; owner: the row of the file each of them belongs to.

    time_s, sustained_s: what was measured in a burst and sustained, shape (rows,), NaN where it was not
    reasons: why a row cannot be asked, "" where it can; groups: words by which errors are grouped, shape (rows,) each
    """

    table: OperatorTable
    owner: Ints
    time_s: Floats
    sustained_s: Floats
    reasons: Words
    groups: Mapping[str, Words]

    @classmethod
    def of(
        cls, sheet: Sheet, found: Sequence[str], parts: Sequence[Part], groups: Mapping[str, Words], *,
        derived_s: Floats | None = None, named: bool = False,
    ) -> Asked:  # fmt: skip
        """From the operators of the rows. derived_s: as `times` takes it; named: every row asks for its software's kernel."""
        table, owner = joined(parts)
        burst, sustained = times(sheet, derived_s)
        return cls(
            table=replace(table, library=sheet.named[owner]) if named else table, owner=owner, time_s=burst,
            sustained_s=sustained, reasons=np.array(found), groups=groups,
        )  # fmt: skip


class Answers(Record, kw_only=True):
    """Predictions of one state, one entry a row of the file: NaN, "" and the refusal where there is none."""

    time_s: Floats
    low_s: Floats
    high_s: Floats
    wall: Words
    refusal: Words

    def replaced(self, rows: NDArray[np.bool_], others: Answers) -> Answers:
        """These answers, but `others` in some rows."""
        names: tuple[str, ...] = self.__struct_fields__
        return Answers(**{name: np.where(rows, getattr(others, name), getattr(self, name)) for name in names})


def emitted(rows: Ints, emit: Callable[[Emitter], None]) -> Part:
    """Operators of several rows of a file at once: `emit` gives the emitter arrays with one entry a row."""
    emitter = Emitter()
    emit(emitter)
    table = emitter.table()
    return table, rows[table.shape]


def sizes(values: NDArray[np.generic]) -> Number:
    """An array for an emitter, which takes a single shape as plain numbers."""
    return values if len(values) > 1 else values.item()


def joined(parts: Sequence[Part]) -> Part:
    """One table of several, in order; an empty one of none."""
    labels = tuple(label for table, _ in parts for label in table.labels)
    offsets = np.cumsum([0, *(len(table.labels) for table, _ in parts)])
    columns: dict[str, NDArray[np.generic]] = {
        name: np.concatenate([getattr(table, name) for table, _ in parts] or [np.zeros(0)]) for name in COLUMNS
    }
    if parts:
        columns["label"] = np.concatenate(
            [table.label + offset for (table, _), offset in zip(parts, offsets, strict=False)]
        )
    owner = np.concatenate([rows for _, rows in parts] or [np.zeros(0, np.int64)])
    columns["shape"] = owner  # rows ran one by one: each has a clock of its own under the power limit
    shapes = int(owner.max(initial=0)) + 1
    return table_from_columns(labels or (Label(name="", layer="", part=""),), shapes, len(owner), columns), owner


def answers(gpu: Gpu, asked: Asked, state: State, wanted: NDArray[np.bool_]) -> Answers:
    """Times of the rows that are wanted, each the sum of its operators, from one call of the models."""
    rows = wanted[asked.owner] if len(asked.owner) else np.zeros(0, bool)
    table, owner, length = asked.table.select(rows), asked.owner[rows], len(asked.reasons)
    if not len(owner):
        nothing, blank = np.full(length, np.nan), np.full(length, "")
        return Answers(time_s=nothing, low_s=nothing, high_s=nothing, wall=blank, refusal=blank)
    times = gpu.predict(table, state)
    there = np.bincount(owner, minlength=length) > 0
    total = np.where(there, np.bincount(owner, table.count * times.time_s, length), np.nan)
    below, above = bounds(owner, length, table.count, times)
    return Answers(
        time_s=total,
        low_s=total - below,
        high_s=total + above,
        wall=_walls(owner, table, times, total),
        refusal=_refusals(owner, times, length),
    )


def _walls(owner: Ints, table: OperatorTable, times: Times, total: Floats) -> Words:
    """The wall on which a row spends the most time."""
    spent = np.nan_to_num(table.count * times.time_s)
    by_wall = np.bincount(owner * len(Wall) + times.wall, spent, len(total) * len(Wall)).reshape(-1, len(Wall))
    names = np.array([wall.name.lower() for wall in Wall])
    return np.where(np.isnan(total), "", names[by_wall.argmax(axis=1)])


def _refusals(owner: Ints, times: Times, length: int) -> Words:
    first: list[str] = [""] * length
    for operator in np.flatnonzero(times.refused)[::-1]:
        first[owner[operator]] = times.refusals[times.refusal[operator]]
    return np.array(first)
