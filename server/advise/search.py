"""Looks through the re-shapes of a model and keeps the Pareto front of time against parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewise.hwdb.table import Floats, Ints
from tilewise.server.advise.asked import CHUNK, Asked, Changes, beyond_size, figures, gains, holds
from tilewise.server.advise.edits import LEAST_GAIN
from tilewise.server.advise.subject import Subject


def front(
    subject: Subject, asked: Sequence[Asked], candidates: Changes, most: int, room: Floats
) -> Iterator[int | list[dict[str, int]]]:
    """Numbers of candidates done so far, and at the end the sizes of the best, the fastest first.

    room: (asked,) bytes that may be resident; what `holds` refuses is left out
    """
    total = len(next(iter(candidates.values())))
    ratios, parameters = np.full(total, np.inf), np.full(total, np.nan)
    for first in range(0, total, CHUNK):
        rows = np.arange(first, min(first + CHUNK, total))
        chunk = {name: np.append(subject.sizes[name], values[rows]) for name, values in candidates.items()}
        found = figures(subject, asked, chunk)
        ratio = gains(asked, found)
        fits = holds(found.memory_bytes[:, :1], found.memory_bytes[:, 1:], room[:, None]).all(axis=0)
        grown = found.parameters[1:] / subject.parameters
        ratios[rows] = np.where(fits & np.isfinite(ratio), beyond_size(ratio, grown), np.inf)
        parameters[rows] = grown
        yield int(rows[-1]) + 1
    kept = _pareto(ratios, abs(parameters - 1))[:most]
    yield [_sizes(subject, candidates, at) for at in kept.tolist()]


def _pareto(ratio: Floats, changed: Floats) -> Ints:
    """Candidates that no other beats in both, the fastest first; of those that gain alike only the nearest in parameters."""
    order = np.lexsort((changed, ratio))
    order = order[ratio[order] < 1 - LEAST_GAIN]
    kept: list[int] = []
    fastest = 0.0  # of the candidates that gain alike and of which the last kept one is the nearest
    for at in order.tolist():
        if kept and changed[at] >= changed[kept[-1]]:
            continue
        if kept and ratio[at] <= fastest + LEAST_GAIN:
            kept[-1] = at
        else:
            kept.append(at)
            fastest = ratio[at]
    return np.array(kept, np.int64)


def _sizes(subject: Subject, candidates: Changes, at: int) -> dict[str, int]:
    return {name: int(values[at]) for name, values in candidates.items() if values[at] != subject.sizes[name]}
