"""Steps: what a step of each of 1..n shapes costs, column by column; a column is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels import limits
from tilewise.hwdb.kinds import multiplies
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import Floats, Ints, OperatorTable
from tilewise.hwdb.times import Times, Trust, Wall
from tilewise.server.architecture.sizes import column
from tilewise.server.operators.conventions import by_shape, causal_flops, full_flops
from tilewise.server.operators.programs import AGREES, Program
from tilewise.server.step.losses import losses, summed
from tilewise.server.step.report import Energy, Interval, Step
from tilewise.server.step.time import Sums
from tilewise.server.workload import Workload

PROGRAM = "the program"  # the weakest link where what it launches is less known than how long that takes
NEGLIGIBLE = 0.02  # of the busy time: a stand-in for a cache's copy of 3 us does not make a measured step a guess
SUMMED = ("gap_s", "issue_s", "launches")  # columns of Sums
COUNTED = ("executed_flops", "memory_bytes", "padding_s", "wave_s", "alignment_s", "distance")
PER_TIME = ("tokens_per_s", "mfu", "hfu", "palm_mfu", "mbu", "flops_per_j")  # None where there is no time
Words = NDArray[np.str_]
_WALLS, _TRUSTS = tuple(Wall), tuple(Trust)
REGIMES = {
    "compute": (Wall.COMPUTE, Wall.SPECIAL_FUNCTION),
    "bandwidth": (Wall.MEMORY,),
    "overhead": (Wall.LAUNCH,),
    "communication": (Wall.COMMUNICATION,),
}
_REGIMES, _BY_REGIME = np.array(list(REGIMES)), [wall for walls in REGIMES.values() for wall in walls]
_STARTS = np.cumsum([0, *map(len, REGIMES.values())])[:-1]


def lowest_trust(times: Times, sums: Callable[[Floats], Floats], whole: Floats) -> Ints:
    """The lowest trust that matters of each sum of rows: what stands on less must make up NEGLIGIBLE of the whole to count."""
    found = np.full(whole.shape, int(max(Trust)))
    for level in range(max(Trust) - 1, int(times.trust.min(initial=max(Trust))) - 1, -1):
        below = sums(np.where(times.trust <= level, times.time_s, 0.0))
        found = np.where((below > 0) & (below >= NEGLIGIBLE * whole), level, found)
    return found


class Steps(Record, kw_only=True):
    """Columns of shape (shapes,) with the names and units of report.Step; NaN where a shape has no time, as `refusal` says.

    table, times, launched: the operators of all shapes; sums: their totals; palm_flops: None where no architecture is known
    program: what is known of the sequence of operators itself
    There is one shape where no operator sees what candidates differ in: their rows are alike.
    """

    gpu: Gpu
    workload: Workload
    peak: Peak
    table: OperatorTable
    times: Times
    launched: Floats
    sums: Sums
    palm_flops: Floats | None
    program: Program = AGREES

    def only(self, at: int, workload: Workload) -> Steps:
        """One of several candidates alone; workload: its own, with plain lengths."""
        at, shapes = (at, self.table.shapes) if self.table.shapes > 1 else (0, 1)
        rows, palm = np.arange(at, len(self.table), shapes), self.palm_flops
        table = self.table.select(rows)
        return Steps(
            gpu=self.gpu, workload=workload, peak=self.peak, times=self.times.select(rows), launched=self.launched[rows],
            table=replace(table, shapes=1, shape=np.zeros_like(table.shape)),
            sums=Sums(*(getattr(self.sums, name)[at : at + 1] for name in Sums.__struct_fields__)),
            palm_flops=palm if palm is None or len(palm) == 1 else palm[at : at + 1], program=self.program,
        )  # fmt: skip

    def rows(self, count: int = 1) -> Iterator[Step]:
        """A Step of plain numbers for each of `count` candidates."""
        columns = self._columns(count)
        return (Step(*row) for row in zip(*(columns[name] for name in Step.__struct_fields__), strict=True))

    def _columns(self, count: int) -> dict[str, list[Any]]:
        """The fields of Step."""
        found = {name: self.column(name, count) for name in (*COUNTED, *PER_TIME, "regime", "refusal", "weakest_link")}
        found |= {name: column(getattr(self.sums, name), count) for name in SUMMED}
        found |= {name: list(map(tuple, self.column(name, count))) for name in ("walls", "losses")}
        found |= {"time": self.intervals(count), "busy": self.busy(count), "energy": self._energies(count)}
        found["wall"] = [_WALLS[code] for code in self.column("wall", count)]
        found["trust"] = [_TRUSTS[code] for code in self.column("trust", count)]
        flops = self.flops
        by_convention = zip(*(column(each, count) for each in flops.values()), strict=True)
        found["flops"] = [dict(zip(flops, each, strict=True)) for each in by_convention]
        alike = {"tokens": self.workload.tokens, "peak": self.peak, "state": self.workload.clock}
        found |= {name: [value] * count for name, value in alike.items()}
        if any(found["refusal"]):
            for name in (*PER_TIME, "energy"):
                found[name] = [None if why else each for each, why in zip(found[name], found["refusal"], strict=True)]
        return found

    def column(self, name: str, count: int) -> list[Any]:
        return column(getattr(self, name), count)

    def intervals(self, count: int) -> list[Interval | None]:
        """Times of `count` candidates, None where there is none."""
        found = _intervals((self.sums.time_s, self.sums.low_s, self.sums.high_s), count)
        return [None if refusal else time for time, refusal in zip(found, self.column("refusal", count), strict=True)]

    def busy(self, count: int) -> list[Interval]:
        return _intervals((self.sums.busy_s, self.sums.busy_low_s, self.sums.busy_high_s), count)

    def _energies(self, count: int) -> list[Energy] | list[None]:
        if self.joules is None:
            return [None] * count
        return [Energy(*each) for each in column(self.joules, count)]

    @property
    def time_s(self) -> Floats:
        return self.sums.time_s

    @cached_property
    def idle_s(self) -> Floats:
        """Seconds in which the GPU runs no kernel: gaps, and waiting for the CPU."""
        idle = self.sums.time_s - self.sums.busy_s
        return np.where(np.isnan(idle), 0.0, idle)

    @cached_property
    def causal_flops(self) -> Floats:
        return causal_flops(self.table)

    @property
    def flops(self) -> dict[str, Floats]:
        palm = {} if self.palm_flops is None else {"palm": self.palm_flops}
        return {"causal": self.causal_flops, "full": full_flops(self.table), **palm}

    @cached_property
    def executed_flops(self) -> Floats:
        return by_shape(self.table, self.table.executed_flops)

    @cached_property
    def memory_bytes(self) -> Floats:
        return by_shape(self.table, self.table.bytes_read + self.table.bytes_written)

    @property
    def tokens_per_s(self) -> Floats:
        return self.workload.tokens / self.time_s

    @property
    def mfu(self) -> Floats:
        return self.causal_flops / (self.peak.flops_per_s * self.time_s)

    @property
    def hfu(self) -> Floats:
        return self.executed_flops / (self.peak.flops_per_s * self.time_s)

    @property
    def palm_mfu(self) -> Floats | None:
        return None if self.palm_flops is None else self.palm_flops / (self.peak.flops_per_s * self.time_s)

    @property
    def mbu(self) -> Floats:
        moved = by_shape(self.table, limits.from_memory(self.table, self.times, self.gpu.sku))
        return moved / (self.time_s * self.gpu.sku.hbm_bytes_per_s)

    @cached_property
    def walls(self) -> Floats:
        """Seconds by wall, (Wall, shapes): rows under their own wall; gaps and waiting for the CPU under launch."""
        shapes, time = self.table.shapes, self.table.count * self.times.known_s
        sums = np.bincount(self.times.wall * shapes + self.table.shape, time, len(Wall) * shapes)
        walls = sums.reshape(len(Wall), shapes).astype(float, copy=False)
        walls[Wall.LAUNCH] += self.idle_s
        return walls

    @property
    def wall(self) -> Ints:
        return np.asarray(self.walls.argmax(axis=0))

    @property
    def regime(self) -> Words:
        """The largest of compute, bandwidth, overhead and communication."""
        return np.asarray(_REGIMES[np.add.reduceat(self.walls[_BY_REGIME], _STARTS).argmax(axis=0)])

    @cached_property
    def peaks(self) -> dict[int, Peak]:
        """Dense peaks by the precisions that the table multiplies in."""
        used = set(self.table.precision[multiplies(self.table) & ~self.times.refused].tolist())
        return {code: self.gpu.peak(Precision(code)) for code in sorted(used)}

    @cached_property
    def lost(self) -> Floats:
        """Seconds by cause of every row, (losses.CAUSES, rows)."""
        return losses(self.table, self.times, self.peaks)

    @property
    def losses(self) -> Floats:
        """Seconds by cause, (losses.CAUSES, shapes)."""
        return summed(self.lost, self.idle_s, self.table.shape, self.table.shapes)

    @cached_property
    def joules(self) -> Floats | None:
        """Low, value and high, shape (3, shapes)."""
        return self.gpu.energy(self.table, self.times, self.workload.clock, self.idle_s)

    @property
    def flops_per_j(self) -> Floats | None:
        return None if self.joules is None else self.causal_flops / self.joules[1]

    @property
    def padding_s(self) -> Floats:
        return by_shape(self.table, self.times.padding_s)

    @property
    def wave_s(self) -> Floats:
        return by_shape(self.table, self.times.wave_s)

    @property
    def alignment_s(self) -> Floats:
        return by_shape(self.table, self.times.alignment_s)

    def largest_parts(self, count: int) -> list[tuple[str, float]]:
        """Of each of `count` candidates the kind of layer that takes most of the step, and its share."""
        names, part = parts_of(self.table)
        code, shapes = part * self.table.shapes + self.table.shape, self.table.shapes
        busy = np.bincount(code, self.table.count * self.times.time_s, len(names) * shapes).reshape(-1, shapes)
        share = column(busy.max(axis=0) / self.time_s, count)
        return [(names[at], most) for at, most in zip(column(busy.argmax(axis=0), count), share, strict=True)]

    @cached_property
    def trust(self) -> Ints:
        """The lowest trust of the operators that matter, and of the program."""
        return np.asarray(np.minimum(self.kernel_trust, int(self.program_trust)))

    @property
    def program_trust(self) -> Trust:
        """A program that was never compared, or differs, is not measured, however well its kernels are."""
        return min(self.workload.program.trust, Trust.PUBLISHED if self.program.why else Trust.MEASURED)

    @cached_property
    def kernel_trust(self) -> Ints:
        return lowest_trust(self.times, lambda time: by_shape(self.table, time), self.sums.busy_s)

    @cached_property
    def weakest_link(self) -> Words:
        """What holds the trust down: the program, or the largest operator on that level with the share of the time on it; "" for nothing."""
        shapes, trust, program = self.table.shapes, self.kernel_trust, int(self.program_trust)
        if program < trust.min() or trust.min() == max(Trust):
            return np.array([PROGRAM if program < trust.min() else ""] * shapes)
        time = self.table.count * self.times.known_s
        weak = np.where(self.times.trust <= trust[self.table.shape], time, 0.0).reshape(-1, shapes)
        codes = self.table.label.reshape(-1, shapes)[weak.argmax(axis=0), np.arange(shapes)].tolist()
        shares = (weak.sum(axis=0) / self.sums.busy_s).tolist()
        rows = zip(codes, shares, trust.tolist(), strict=True)
        return np.array([PROGRAM if program < level else self._weakest(level, *link) for *link, level in rows])

    def _weakest(self, level: int, code: int, share: float) -> str:
        return f"{self.table.labels[code].name}, {100 * share:.0f} % of the time" if level < max(Trust) else ""

    @property
    def distance(self) -> Floats:
        """That of the operator farthest from what was measured, of those that run at all."""
        run = np.where(self.table.count > 0, self.times.distance, np.nan)
        found: Floats = np.fmax.reduce(run.reshape(-1, self.table.shapes))
        return found

    @cached_property
    def refusal(self) -> Words:
        """Why a shape has no time: its first operator without one, and the reason; "" where it has a time."""
        refused = self.times.refused.reshape(-1, self.table.shapes)
        found = [""] * self.table.shapes
        for shape in np.flatnonzero(refused.any(axis=0)).tolist():
            found[shape] = self._reason(int(refused[:, shape].argmax()) * self.table.shapes + shape)
        return np.array(found)

    def _reason(self, row: int) -> str:
        label = self.table.labels[int(self.table.label[row])]
        stack = label.layer.partition(".")[0]  # its layers may be others in another shape
        return f"{label.name} of {stack}: {self.times.refusals[int(self.times.refusal[row])]}"


def _intervals(bounds: Sequence[Floats], count: int) -> list[Interval]:
    return [Interval(*each) for each in zip(*(column(bound, count) for bound in bounds), strict=True)]


def parts_of(table: OperatorTable) -> tuple[list[str], Ints]:
    """Kinds of layer in the order the step meets them, and for every row which of them it belongs to."""
    names = list(dict.fromkeys(label.part for label in table.labels))
    codes = np.array([names.index(label.part) for label in table.labels])
    return names, codes[table.label]
