"""Scales: what every change is weighed against, and what it weighs: its interval, its cause and its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats
from tilewise.server.advise.advice import Effect, Kind, Recommendation
from tilewise.server.advise.asked import Asked, holds, rooms, score
from tilewise.server.advise.cause import Cause, why
from tilewise.server.advise.subject import Subject
from tilewise.server.step.predict import predict
from tilewise.server.step.ratio import ratio_of
from tilewise.server.step.report import Report

NOTHING: Mapping[str, Any] = {}


class Scales(Record):
    """A model, what is asked of it, and how it runs as it is: one report for each that is asked.

    energy: whether joules are to be made smaller and not seconds; their interval is taken from that of the time
    most_bytes: that may be resident on one GPU (0: what its reserve leaves)
    """

    subject: Subject
    asked: Sequence[Asked]
    energy: bool = False
    most_bytes: float = 0.0

    @cached_property
    def before(self) -> tuple[Report, ...]:
        arch = self.subject.architecture
        return tuple(predict(each.gpu, arch, each.workload) for each in self.asked)

    @cached_property
    def room(self) -> Floats:
        return rooms(self.asked, self.most_bytes)

    def weigh(
        self, kind: Kind, sizes: Mapping[str, int] = NOTHING, workload: Mapping[str, Any] = NOTHING
    ) -> Recommendation | None:
        """A change of `sizes` and of fields of the `workload`; None where it cannot be, is refused, or does not fit (`holds`)."""
        after = self._after(sizes, workload)
        if after is None:
            return None
        effects = tuple(effect(*each) for each in zip(self.asked, self.before, after, strict=True))
        if self.energy and any(each.energy_ratio is None for each in effects):
            return None
        total, low, high = self._score(effects)
        pairs = list(zip(self.before, after, strict=True))
        cause = self._cause(effects, pairs, gains=total < 1)
        grown = int(after[0].parameters.total) - self.subject.parameters
        memory = max(int(new.memory.total_bytes) - int(old.memory.total_bytes) for old, new in pairs)
        return Recommendation(
            kind=kind,
            changes=self._changes(sizes, workload),
            effects=effects,
            score=total,
            low=low,
            high=high,
            parameter_change=grown,
            memory_change=memory,
            cause=cause.code,
            message=f"{cause.sentence}; {price(grown, self.subject.parameters, memory)}",
        )

    def _after(self, sizes: Mapping[str, int], workload: Mapping[str, Any]) -> list[Report] | None:
        try:
            arch = self.subject.read(sizes)
            after = [predict(each.gpu, arch, replace(each.workload, **workload)) for each in self.asked]
        except (InvalidInput, NotAvailable):
            return None
        old, new = (np.array([float(each.memory.total_bytes) for each in reports]) for reports in (self.before, after))
        possible = all(each.step.time is not None for each in after) and holds(old, new, self.room).all()
        return after if possible else None

    def _score(self, effects: Sequence[Effect]) -> tuple[float, float, float]:
        """After over before of what is to be made smaller, over all that is asked, with its interval."""
        times = np.array([each.time_ratio for each in effects])
        values = np.array([each.energy_ratio for each in effects], float) if self.energy else times
        bounds = np.array([[each.low, each.high] for each in effects]) / times[:, None]
        figures = values[:, None] * np.column_stack([np.ones(len(effects)), bounds])
        costs = np.array([cost(report, self.energy) for report in self.before])
        total, low, high = score(self.asked, figures, costs).tolist()
        return total, low, high

    def _cause(self, effects: Sequence[Effect], pairs: Sequence[tuple[Report, Report]], gains: bool) -> Cause:
        """Why it is faster where it gains least, or slower where it loses most."""
        old, new = pairs[int(np.argmax([each.time_ratio for each in effects]))]
        if gains:
            return why(old, new)
        cause = why(new, old)
        return replace(cause, sentence=f"no gain: as it is, {cause.sentence}")

    def _changes(self, sizes: Mapping[str, int], workload: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
        """(field, as it is, advised) of every size and every field of the workload that changes."""
        own, work = self.subject.sizes, self.asked[0].workload
        moved = [(name, str(own[name]), str(size)) for name, size in sizes.items() if size != own[name]]
        return (*moved, *((name, str(getattr(work, name)), str(value)) for name, value in workload.items()))


def effect(asked: Asked, before: Report, after: Report) -> Effect:
    """A token's time, counted on every GPU that shares the model, after over before."""
    share = before.workload.tokens / after.workload.tokens
    share *= after.workload.tensor_parallel / before.workload.tensor_parallel
    low, ratio, high = ratio_of(asked.gpu, before, after)
    old, new = before.step.energy, after.step.energy
    energy = new.energy_j / old.energy_j * share if old and new else None
    return Effect(
        time_ratio=ratio * share, low=low * share, high=high * share, step_ratio=ratio, after=after, energy_ratio=energy
    )


def cost(report: Report, energy: bool) -> float:
    """Joules or seconds of a token."""
    assert report.step.time is not None
    joules = report.step.energy.energy_j if energy and report.step.energy else 0.0
    return (joules or report.step.time.time_s) / report.workload.tokens


def price(parameters: int, of: int, memory_bytes: int) -> str:
    """What a change costs, in words."""
    memory = f"{abs(memory_bytes) / 1e9:.2f} GB {'more' if memory_bytes > 0 else 'less'} memory"
    memory = "the same memory" if abs(memory_bytes) < 5e6 else memory
    if not parameters:
        return f"the same parameters, {memory}"
    return f"{parameters:+,} parameters ({parameters / of:+.2%}), {memory}"
