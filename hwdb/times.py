"""What a kernel model answers: for every row of an OperatorTable a time, its interval, its wall and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats, Ints


class Wall(IntEnum):
    """What bounds an operator."""

    COMPUTE = 0
    MEMORY = 1
    SPECIAL_FUNCTION = 2
    LAUNCH = 3
    COMMUNICATION = 4


class Trust(IntEnum):
    """Where a number comes from; higher is better."""

    DATASHEET = 0  # ceilings assumed from a datasheet and siblings
    PUBLISHED = 1  # fitted to others' measurements
    MEASURED = 2  # our suite, on that SKU


class State(IntEnum):
    """The state of the GPU for which a time holds."""

    BURST = 0  # a short call: boost clock
    SUSTAINED = 1  # long training or steady serving: the clock that the power limit allows


class Times(Record, kw_only=True):
    """Predicted times of one execution of each row; all arrays have shape (rows,).

    time_s, low_s, high_s: seconds on the GPU, with the bounds of a 90 % interval; NaN where refused
    compute_s, memory_s, special_s, launch_s: time that each wall alone would take
    padding_s, wave_s, alignment_s: seconds of time_s lost to tile padding, to the last wave, to misaligned operands
    wall, trust:   codes of Wall and Trust
    distance:      octaves (doublings of a size) to the nearest measurement of the kernel that answers; 0: among them;
                   NaN where no measurement stands behind the row
    kernel:        index into `kernel_names` of the kernel expected, -1 where none is named
    tiles, waves:  output tiles and waves of that kernel, 0 where it has none
    refusal:       index into `refusals` of the reason why a row has no time, -1 where it has one
    burst:         of sustained times those at the boost clock that they were made of, where these are kept
    """

    time_s: Floats
    low_s: Floats
    high_s: Floats
    compute_s: Floats
    memory_s: Floats
    special_s: Floats
    launch_s: Floats
    padding_s: Floats
    wave_s: Floats
    alignment_s: Floats
    wall: Ints
    trust: Ints
    distance: Floats
    kernel: Ints
    tiles: Floats
    waves: Floats
    refusal: Ints
    kernel_names: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    burst: Times | None = None

    def __len__(self) -> int:
        return len(self.time_s)

    def select(self, rows: Ints) -> Times:
        """The rows of an index array."""
        kept = dict(zip(COLUMNS, [column[rows] for column in columns_of(self)], strict=True))
        burst = self.burst.select(rows) if self.burst is not None else None
        return Times(**kept, kernel_names=self.kernel_names, refusals=self.refusals, burst=burst)

    def scaled(self, times: Floats) -> Times:
        """Every row's seconds so many times."""
        seconds = {name: getattr(self, name) * times for name in COLUMNS if name.endswith("_s")}
        return replace(self, **seconds)

    def less_sure(self, logs: Floats) -> Times:
        """With further half-widths of log(time), which add to the intervals' own as independent errors do."""
        low, high = (np.hypot(np.log(bound / self.time_s), logs) for bound in (self.low_s, self.high_s))
        return replace(self, low_s=self.time_s * np.exp(-low), high_s=self.time_s * np.exp(high))

    @property
    def refused(self) -> NDArray[np.bool_]:
        return self.refusal >= 0

    @property
    def known_s(self) -> Floats:
        """time_s, 0 where refused."""
        return np.where(self.refused, 0.0, self.time_s)


COLUMNS: dict[str, type] = {
    name: np.float64 if kind == "Floats" else np.int64
    for name, kind in Times.__annotations__.items()
    if name not in ("kernel_names", "refusals", "burst")
}

columns_of = attrgetter(*COLUMNS)  # of times, all at once


def merge(length: int, parts: Sequence[tuple[Ints | slice, Times]]) -> Times:
    """One Times of `length` rows from (row indices, Times of those rows); the parts cover every row once."""
    columns: dict[str, NDArray[Any]] = {name: np.empty(length, dtype) for name, dtype in COLUMNS.items()}
    names: dict[tuple[str, ...], int] = {}  # texts that several parts share are kept once
    reasons: dict[tuple[str, ...], int] = {}
    for rows, times in parts:
        for column, part in zip(columns.values(), columns_of(times), strict=True):
            column[rows] = part
        columns["kernel"][rows] += np.where(times.kernel >= 0, _offset(names, times.kernel_names), 0)
        columns["refusal"][rows] += np.where(times.refusal >= 0, _offset(reasons, times.refusals), 0)
    return Times(**columns, kernel_names=tuple(sum(names, ())), refusals=tuple(sum(reasons, ())), burst=None)


def _offset(seen: dict[tuple[str, ...], int], texts: tuple[str, ...]) -> int:
    """Where `texts` begin in the concatenation of all texts seen."""
    return seen.setdefault(texts, sum(map(len, seen)))
