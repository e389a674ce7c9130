"""The 90 % interval of the ratio of two predicted steps, which is far narrower than the two intervals suggest.

A step's log time errs by sum_i w_i e_i: w_i is operator i's share of the step, e_i its log error with half-width h_i. The log
ratio of two steps errs by sum_i (w_i' - w_i) e_i over the operators of both. An operator that both have errs identically in
both, so what did not change cancels; the rest adds up, with d = w' - w, as

    operators^2 = sum_ij d_i h_i K_ij d_j h_j,    K_ii = 1,    K_ij = alike x exp(-distance_ij / octaves)

for i, j of one kernel group and 0 across groups. Two things more are shared as far as the steps are alike:

    half^2 = operators^2 + state^2 D + U launching^2

D is the share of the seconds by kernel group that the two do not have in common (1 - sum of minima / sum of maxima), U that
of the launches; `state` is how far the clock and power of two unlike steps differ; `launching` how much longer
or shorter a step lasts at the bounds of the launch cost. ratio.toml holds alike, octaves and state, and how they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb import packaged
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kinds import KINDS, by_code
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import COLUMNS, PLACE, Floats, Ints, Kind, Layout, OperatorTable, mixed
from tilewise.hwdb.times import Times
from tilewise.server.step.intervals import Bounds, independent
from tilewise.server.step.report import Interval, Report, TableReport
from tilewise.server.step.time import launches, step_sums
from tilewise.server.workload import Workload

GROUP = ("kind", "op", "variant", "precision", "layout", "phase", "causal")  # one kernel group: alike in all of these
ALIGNED = 8  # elements: below 16 bytes cuBLAS takes other kernels, whose errors are their own
ROUNDING = 1e-5  # nets round in single precision, and not alike when they are asked together with others
Keys = NDArray[np.uint64]
Columns = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.bool_]


class Errors(Record, kw_only=True):
    """What the errors of one or many steps are made of: one entry an operator, and bounds of each step.

    step:     index of each entry's step; key, group: equal for identical operators, for operators of one kernel group
    seconds:  that it spends in the step; share: of the step's time, 0 where the step waits for the CPU
    half:     half-width of the 90 % interval of its log time; kernels: that it launches in the step
    place:    (entries, 4) log2 of its sizes; alike, octaves, state: of its group (ratio.toml)
    longer, shorter: (steps,) log of how much a step's time grows or shrinks at the bounds of the launch cost
    """

    step: Ints
    key: Keys
    group: Keys
    seconds: Floats
    share: Floats
    half: Floats
    kernels: Floats
    place: Floats
    alike: Floats
    octaves: Floats
    state: Floats
    longer: Floats
    shorter: Floats


def errors_of(gpu: Gpu, table: OperatorTable, times: Times, workload: Workload) -> Errors:
    """The errors of the steps of a table, one a shape; `times` as gpu.predict has them, none refused."""
    launched = launches(table, gpu, times, workload.mode == "eager")
    sums, seconds = step_sums(gpu, workload, table, times, launched), table.count * times.time_s
    waits = sums.issue_s >= sums.time_s
    alike, octaves, state = _likeness(table, times)
    return Errors(
        step=table.shape,
        key=_mixed([getattr(table, name) for name in COLUMNS if name not in PLACE]),
        group=_mixed(_group_columns(table, times)),
        seconds=seconds,
        share=np.where(waits, 0, 1 / sums.time_s)[table.shape] * seconds,
        half=0.5 * np.log(times.high_s / times.low_s),
        kernels=table.count * launched,
        place=_place(table),
        alike=alike,
        octaves=octaves,
        state=state,
        longer=np.log(sums.launch_high_s / sums.time_s),
        shorter=np.log(sums.time_s / sums.launch_low_s),
    )


def half_widths(base: Errors, heads: Errors) -> tuple[Floats, Floats]:
    """(below, above): half-widths of the 90 % interval of log(head time / base time), shape (heads,). `base` is one step.

    0 where nothing differs.
    """
    both = _Pairing.of(base, heads)
    apart, unlike = both.operators() + both.states(), both.launches()
    below = np.sqrt(apart + unlike * (heads.shorter**2 + base.longer**2))
    above = np.sqrt(apart + unlike * (heads.longer**2 + base.shorter**2))
    return below, above


class Timed(Record, kw_only=True):
    """A step with its time, and the operators it was summed from; predicted now, or saved. calibration: "" of a datasheet"""

    calibration: str
    workload: Workload
    time: Interval
    table: OperatorTable
    times: Times

    @classmethod
    def of(cls, report: Report | TableReport) -> Timed:
        assert report.step.time is not None
        return cls(
            calibration=report.calibration, workload=report.workload, time=report.step.time, table=report.table,
            times=report.times,
        )  # fmt: skip


def ratio_of(gpu: Gpu, base: Report | TableReport, head: Report | TableReport) -> Bounds:
    """(low, ratio, high) of head's time over base's on one GPU; both must have a time."""
    return ratio_between(gpu, Timed.of(base), Timed.of(head))


def ratio_between(gpu: Gpu, base: Timed, head: Timed) -> Bounds:
    """As `ratio_of`; two calibrations have no measurement in common, so that nothing cancels."""
    one, two = ((each.time.low_s, each.time.time_s, each.time.high_s) for each in (base, head))
    if base.calibration != head.calibration:
        return independent(one, two)
    below, above = half_widths(*(errors_of(gpu, each.table, each.times, each.workload) for each in (base, head)))
    ratio = two[1] / one[1]
    return ratio * float(np.exp(-below[0])), ratio, ratio * float(np.exp(above[0]))


class _Pairing(Record):
    """Every head beside the base: one entry a head and operator of either, sorted by head and group."""

    heads: int
    head: Ints
    group: Keys
    base: dict[str, Floats]  # seconds, share and kernels in the base; 0 where it lacks the operator
    there: dict[str, Floats]  # the same in the head
    half: Floats
    place: Floats
    alike: Floats
    octaves: Floats
    state: Floats

    @classmethod
    def of(cls, base: Errors, heads: Errors) -> _Pairing:
        count = len(heads.longer)
        tiled = np.tile(np.arange(len(base.step)), count)
        head = np.concatenate([np.repeat(np.arange(count), len(base.step)), heads.step])
        is_base = np.arange(len(head)) < len(tiled)

        def column(name: str) -> NDArray[Any]:
            joined: NDArray[Any] = np.concatenate([getattr(base, name)[tiled], getattr(heads, name)])
            return joined

        key, group = column("key"), column("group")
        order = np.lexsort((key, group, head))
        first = _starts(head[order], group[order], key[order])
        sums = {
            name: [np.add.reduceat(np.where(mine, column(name), 0.0)[order], first) for mine in (is_base, ~is_base)]
            for name in ("seconds", "share", "kernels")
        }
        kept = order[first]
        half = np.maximum.reduceat(column("half")[order], first)  # equal but for the clock that each step settles at
        facts = [column(name)[kept] for name in ("place", "alike", "octaves", "state")]
        before, after = ({name: pair[side] for name, pair in sums.items()} for side in (0, 1))
        return cls(count, head[kept], group[kept], before, after, half, *facts)

    def states(self) -> Floats:
        """state^2 D of the module's formula by head, each operator with the state of its own kind."""
        return self._apart("seconds", self.state)

    def launches(self) -> Floats:
        """U of the module's formula by head."""
        return self._apart("kernels", 1.0)

    def _apart(self, name: str, state: Floats | float) -> Floats:
        """The share of `name`, summed by kernel group, that head and base do not have in common, times state^2."""
        first = _starts(self.head, self.group)
        before, after = (np.add.reduceat(side[name], first) for side in (self.base, self.there))
        longest = np.maximum(before, after)
        gap = np.where(np.abs(before - after) < ROUNDING * longest, 0.0, np.abs(before - after))
        weight = np.broadcast_to(state, len(self.head))[first] ** 2
        head = self.head[first]
        share: Floats = np.bincount(head, weight * gap, self.heads) / np.bincount(head, longest, self.heads)
        return share

    def operators(self) -> Floats:
        """operators^2 of the module's formula by head."""
        moved = self.there["share"] - self.base["share"]
        part = np.where(np.abs(moved) < ROUNDING, 0.0, moved) * self.half
        own = np.bincount(self.head, (1 - self.alike) * part**2, self.heads)
        i, j = self._pairs(part)
        near = self.alike[i] * np.exp(-np.abs(self.place[i] - self.place[j]).sum(1) / self.octaves[i])
        shared = np.bincount(self.head[i], near * part[i] * part[j], self.heads)
        variance: Floats = np.maximum(own + shared, 0.0)
        return variance

    def _pairs(self, part: Floats) -> tuple[Ints, Ints]:
        """All pairs of entries of one head and group whose errors are alike, each with itself too."""
        use = np.flatnonzero((self.alike > 0) & (part != 0))
        if not len(use):
            return use, use
        start = _starts(self.head[use], self.group[use])
        size = np.diff([*start, len(use)])
        block = np.repeat(np.arange(len(start)), size**2)
        within = np.arange(len(block)) - np.repeat(np.cumsum(size**2) - size**2, size**2)
        return use[start[block] + within // size[block]], use[start[block] + within % size[block]]


def _starts(*columns: NDArray[Any]) -> Ints:
    """Where the rows of sorted columns change, the first row included."""
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(new)


def _likeness(table: OperatorTable, times: Times) -> tuple[Floats, ...]:
    """alike, octaves and state of every row: by its kind, and by whether a calibration stands behind it."""
    facts, measured = _facts(), np.isfinite(times.distance)
    return tuple(
        np.where(measured, facts["calibrated"][name][table.kind], facts["datasheet"][name][table.kind])
        for name in ("alike", "octaves", "state")
    )


def _by_code(known: dict[str, Any], name: str) -> Floats:
    """A value for every kind: its own, or that of the section."""
    return by_code(lambda record: (known | known.get(record.name, {}))[name])


@cache
def _facts() -> dict[str, Any]:
    """ratio.toml; alike and octaves as arrays by Kind."""
    facts = packaged.toml("tilewise.server.step", "ratio.toml")
    for trust in ("calibrated", "datasheet"):
        facts[trust] = {name: _by_code(facts[trust], name) for name in ("alike", "octaves", "state")}
    return facts


def _place(table: OperatorTable) -> Floats:
    place = np.zeros((len(table), 4))
    for kind, record in KINDS.items():
        rows = table.kind == kind
        for axis, name in enumerate(record.sizes):
            place[rows, axis] = np.log2(np.maximum(getattr(table, name)[rows], 1))
    return place


def _group_columns(table: OperatorTable, times: Times) -> list[Columns]:
    """What tells kernel groups apart; a datasheet's ceilings are assumed for a whole kind of operators at once."""
    aligned = (table.n % ALIGNED == 0) & (table.k % ALIGNED == 0)
    aligned &= (table.layout != Layout.WEIGHT_GRADIENT.value) | (table.m % ALIGNED == 0)
    measured = np.isfinite(times.distance)
    told_apart = [np.where(measured, getattr(table, name), 0) for name in GROUP if name != "kind"]
    return [table.kind, measured, *told_apart, aligned & measured & (table.kind == Kind.GEMM.value)]


def _mixed(columns: Sequence[Columns]) -> Keys:
    return mixed((np.asarray(column, np.float64) for column in columns), len(columns[0]))
