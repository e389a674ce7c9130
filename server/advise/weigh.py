"""One change weighed: predicted anew for everything that is asked, with its interval, its cause and its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.server.advise.advice import Effect, Kind, Recommendation
from tilewise.server.advise.asked import Asked, score
from tilewise.server.advise.cause import why
from tilewise.server.advise.subject import Subject
from tilewise.server.predict import predict
from tilewise.server.ratio import ratio_of
from tilewise.server.report import Report


def baseline(subject: Subject, asked: Sequence[Asked]) -> tuple[Report, ...]:
    """The model as it is, one report for each that is asked."""
    return tuple(predict(each.gpu, subject.architecture, each.workload) for each in asked)


def weighed(
    subject: Subject,
    asked: Sequence[Asked],
    before: Sequence[Report],
    kind: Kind,
    sizes: Mapping[str, int],
    workload: Mapping[str, Any] | None = None,
    energy: bool = False,
) -> Recommendation | None:
    """The change of `sizes` and of fields of the `workload`; None where it is impossible, refused, or no longer fits.

    energy: whether the score is energy and not time; its interval is then that of the time.
    """
    try:
        arch = subject.read(sizes)
        tried = [replace(each.workload, **(workload or {})) for each in asked]
        after = [predict(each.gpu, arch, work) for each, work in zip(asked, tried, strict=True)]
    except (InvalidInput, NotAvailable):
        return None
    if any(new.step.time is None or (old.fits and not new.fits) for old, new in zip(before, after, strict=True)):
        return None
    effects = tuple(_effect(each, old, new) for each, old, new in zip(asked, before, after, strict=True))
    if energy and any(effect.energy_ratio is None for effect in effects):
        return None
    costs = np.array([cost(report, energy) for report in before])
    figures = np.array([[_figure(each, energy), each.low, each.high] for each in effects])
    if energy:
        figures[:, 1:] *= figures[:, :1] / [[each.time_ratio] for each in effects]
    total, low, high = (float(value) for value in score(asked, figures, costs))
    worst = int(np.argmax([each.time_ratio for each in effects]))
    cause = why(before[worst], after[worst]) if total < 1 else why(after[worst], before[worst])
    grown = int(after[0].parameters.total) - subject.parameters
    memory = max(
        int(new.memory.total_bytes) - int(old.memory.total_bytes) for old, new in zip(before, after, strict=True)
    )
    return Recommendation(
        kind=kind,
        changes=changes(subject, asked[0], sizes, workload or {}),
        effects=effects,
        score=total,
        low=low,
        high=high,
        parameter_change=grown,
        memory_change=memory,
        cause=cause.code,
        message=f"{cause.sentence if total < 1 else 'no gain: ' + cause.sentence}; {price(grown, subject.parameters, memory)}",
    )


def cost(report: Report, energy: bool) -> float:
    """Joules or seconds of a token."""
    assert report.step.time is not None
    joules = report.step.energy.energy_j if energy and report.step.energy else 0.0
    return (joules or report.step.time.time_s) / report.workload.tokens


def _figure(effect: Effect, energy: bool) -> float:
    return effect.energy_ratio if energy and effect.energy_ratio is not None else effect.time_ratio


def _effect(asked: Asked, before: Report, after: Report) -> Effect:
    """A token's time on one GPU of those that share the model, after over before."""
    tokens = before.workload.tokens / after.workload.tokens
    share = tokens * after.workload.tensor_parallel / before.workload.tensor_parallel
    low, ratio, high = ratio_of(asked.gpu, before, after)
    energies = before.step.energy, after.step.energy
    energy = energies[1].energy_j / energies[0].energy_j * share if energies[0] and energies[1] else None
    return Effect(time_ratio=ratio * share, low=low * share, high=high * share, after=after, energy_ratio=energy)


def changes(
    subject: Subject, asked: Asked, sizes: Mapping[str, int], workload: Mapping[str, Any]
) -> tuple[tuple[str, str, str], ...]:
    """(field, as it is, advised) of every size and every field of the workload that changes."""
    moved = [
        (field, str(subject.sizes[field]), str(size)) for field, size in sizes.items() if size != subject.sizes[field]
    ]
    run = [(field, str(getattr(asked.workload, field)), str(value)) for field, value in workload.items()]
    return (*moved, *run)


def price(parameters: int, of: int, memory_bytes: int) -> str:
    """What a change costs, in words."""
    memory = f"{abs(memory_bytes) / 1e9:.2f} GB {'more' if memory_bytes > 0 else 'less'} memory"
    memory = "the same memory" if abs(memory_bytes) < 5e6 else memory
    if not parameters:
        return f"the same parameters, {memory}"
    return f"{parameters:+,} parameters ({parameters / of:+.2%}), {memory}"
