"""A model and what is asked of it -> advice: ways to run it, free wins, re-shapes and number formats, each weighed alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from tilewise.hwdb.errors import InvalidInput, OutOfRange
from tilewise.hwdb.record import Record
from tilewise.server.advise.advice import Advice, Kind, Recommendation
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.edits import TOLERANCE, best_edits
from tilewise.server.advise.execution import executions
from tilewise.server.advise.notes import notes
from tilewise.server.advise.precision import narrowed, precisions
from tilewise.server.advise.reshapes import candidates
from tilewise.server.advise.search import front
from tilewise.server.advise.subject import FIELDS, Subject
from tilewise.server.advise.weigh import Scales
from tilewise.server.advise.words import summary
from tilewise.server.deadline import check_alive
from tilewise.server.limits import check_candidates

MOST_CANDIDATES = 100_000
RESULTS = 10
WORTH = 0.01  # a smaller gain is no advice: steps on two machines of one SKU differ by 3 % (docs/accuracy.md)
FRONT = 4  # re-shapes that are weighed in full


class Neighbourhood(Record, kw_only=True):
    """What may change and how far.

    tolerance: largest change of the parameters, as a share; vary: sizes that may change (none: all); keep: that must not
    tensor_parallel: sizes that every shape must allow (none: those of the workloads); precisions: formats (none: all)
    memory_bytes: most that may be resident on one GPU (0: what its reserve leaves); candidates: most to evaluate
    """

    tolerance: float = TOLERANCE
    vary: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    tensor_parallel: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    memory_bytes: float = 0.0
    candidates: int = MOST_CANDIDATES

    def fields(self, subject: Subject) -> tuple[str, ...]:
        """The sizes that may change. Raises InvalidInput for a name that the model does not have."""
        for name in (*self.vary, *self.keep):
            if name not in subject.varied:
                raise InvalidInput(
                    f"{name!r} is no size of this model that can be varied: it has {', '.join(subject.varied)}",
                    reason="UNKNOWN_SIZE",
                    field="neighbourhood.vary" if name in self.vary else "neighbourhood.keep",
                )
        return tuple(name for name in (self.vary or subject.varied) if name in FIELDS and name not in self.keep)


class Progress(Record):
    """Candidates done, of how many."""

    done: int
    total: int


def recommend(
    subject: Subject,
    asked: Sequence[Asked],
    near: Neighbourhood,
    *,
    kinds: Sequence[Kind] = (),
    energy: bool = False,
    results: int = RESULTS,
) -> Iterator[Progress | Advice]:
    """Yields progress and, last, the advice.

    kinds: of advice (none: all); energy: rank by energy and not by time; results: most recommendations
    Raises OutOfRange where the model as it is has no time, InvalidInput where it cannot be read or run.
    """
    wanted, fields = kinds or tuple(Kind), near.fields(subject)
    check_candidates(near.candidates, "neighbourhood.max_candidate_count")
    scales = Scales(subject, asked, energy, near.memory_bytes)
    _check_times(scales)
    found: list[Recommendation] = []
    told, looked_at = list(notes(subject, asked, scales.before)), 0
    if Kind.EXECUTION in wanted:
        found += executions(scales)
    if Kind.FREE_WIN in wanted:
        found += _weighed(scales, Kind.FREE_WIN, best_edits(subject, asked, fields, near.tolerance, most=2))
    check_alive()
    if Kind.RESHAPE in wanted:
        for news in _reshapes(scales, fields, near):
            if isinstance(news, Progress):
                looked_at = news.total
                yield news
            else:
                found += _weighed(scales, Kind.RESHAPE, news)
    if Kind.PRECISION in wanted:
        found += precisions(scales, near.precisions, told)
    ordered = ranked(found, results)
    yield Advice(
        baseline=scales.before,
        recommendations=ordered,
        summary=summary(asked, ordered, wanted),
        notes=tuple(told),
        candidates=looked_at,
    )


def remedies(subject: Subject, asked: Asked) -> tuple[Recommendation, ...]:
    """What is advised on one step without another shape, the largest gain first; nothing for a step without a time."""
    scales = Scales(subject, [asked])
    if scales.before[0].step.time is None:
        return ()
    edits = best_edits(subject, scales.asked, Neighbourhood().fields(subject), TOLERANCE, most=2)
    formats = [found for _, found in narrowed(scales) if found is not None]
    found = [*executions(scales), *_weighed(scales, Kind.FREE_WIN, edits), *formats]
    return tuple(sorted(ranked(found, RESULTS), key=lambda each: each.score))


def _weighed(scales: Scales, kind: Kind, shapes: Sequence[dict[str, int]]) -> list[Recommendation]:
    return [found for sizes in shapes if (found := scales.weigh(kind, sizes)) is not None]


def _reshapes(scales: Scales, fields: Sequence[str], near: Neighbourhood) -> Iterator[Progress | list[dict[str, int]]]:
    """Progress of the search, and the sizes of the best."""
    subject, asked = scales.subject, scales.asked
    split = lcm(*(near.tensor_parallel or [each.workload.tensor_parallel for each in asked]))
    shapes = candidates(subject, fields, split, near.tolerance, near.candidates)
    total = len(next(iter(shapes.values()), ()))
    for news in front(subject, asked, shapes, FRONT, scales.room) if total else ():
        yield Progress(news, total) if isinstance(news, int) else news


def ranked(found: Sequence[Recommendation], most: int) -> tuple[Recommendation, ...]:
    """By kind, in the order of what following it costs; what gains less than WORTH is left out, for formats kept, since people ask.

    Free wins stay as they come (gain for each parameter); re-shapes that gain no more than the best free win say nothing new.
    """
    best_edit = min((each.score for each in found if each.kind is Kind.FREE_WIN), default=1.0)
    kept = [
        each
        for each in found
        if (each.score < 1 - WORTH or each.kind is Kind.PRECISION)
        and (each.kind is not Kind.RESHAPE or each.score < best_edit)
    ]
    order = {kind: at for at, kind in enumerate(Kind)}
    return tuple(sorted(kept, key=lambda each: order[each.kind])[:most])


def _check_times(scales: Scales) -> None:
    for each, report in zip(scales.asked, scales.before, strict=True):
        if report.step.time is None:
            message = f"the model as it is has no time on {each.gpu.sku.name}, so nothing can be compared: {report.step.refusal}"
            raise OutOfRange(message, reason="OUT_OF_RANGE", field="model")
        if scales.energy and report.step.energy is None:
            message = f"power of {each.gpu.sku.name} is not modelled, so nothing can be ranked by energy"
            raise OutOfRange(message, reason="ENERGY_NOT_MODELLED", field="objective")
