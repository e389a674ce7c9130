"""What is asked of every shape: workloads on GPUs, each with its weight, and the one figure that ranks shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.errors import InvalidInput, NotAvailable, TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats, Ints
from tilewise.server.advise.subject import Subject
from tilewise.server.architecture import Architecture
from tilewise.server.architecture.sizes import UnlikeShapes
from tilewise.server.deadline import check_alive
from tilewise.server.step.memory import room_bytes
from tilewise.server.step.predict import predict_many
from tilewise.server.workload import Workload

CHUNK = 512  # shapes in one pass: some 20 MB of operators, and some 30 ms between two looks at the deadline
Changes = dict[str, Ints]  # canonical size -> its value in every candidate


class Asked(Record):
    """One workload on one GPU; weight: its share of all tokens."""

    gpu: Gpu
    workload: Workload
    weight: float = 1.0


class Figures(Record):
    """What a pass over candidates yields.

    time_s: (asked, candidates) seconds a step; NaN where the shape cannot be or is refused
    memory_bytes: (asked, candidates) resident bytes; parameters: (candidates,), NaN where the shape cannot be
    """

    time_s: Floats
    memory_bytes: Floats
    parameters: Floats


def rooms(asked: Sequence[Asked], most: float) -> Floats:
    """Bytes that may be resident on one GPU of each that is asked: what its reserve leaves, and no more than `most` (0: that)."""
    return np.array([min(most or np.inf, room_bytes(each.gpu.sku.memory_bytes, each.workload)) for each in asked])


def holds(before: Floats, after: Floats, room: Floats) -> NDArray[np.bool_]:
    """Whether a change may be advised: it fits, or asks for no more than a model that does not."""
    found: NDArray[np.bool_] = (after <= room) | ((before > room) & (after <= before))
    return found


def figures(subject: Subject, asked: Sequence[Asked], changes: Changes) -> Figures:
    """Figures of candidates that differ in sizes, chunk by chunk; looks at the deadline between them."""
    total = len(next(iter(changes.values())))
    found = Figures(np.full((len(asked), total), np.nan), np.full((len(asked), total), np.nan), np.full(total, np.nan))

    def fill(arch: Architecture, rows: Ints) -> None:
        for at, each in enumerate(asked):
            shapes = predict_many(each.gpu, arch, each.workload)
            found.parameters[rows] = shapes.parameters.total
            found.time_s[at, rows] = shapes.steps.time_s
            found.memory_bytes[at, rows] = shapes.memory.total_bytes

    for first in range(0, total, CHUNK):
        rows = np.arange(first, min(first + CHUNK, total))
        each_possible(subject, changes, rows, fill)
        check_alive()
    return found


def ignore(row: int, error: TilewiseError) -> None:
    """What is done about an impossible shape where nobody asks for it."""


def each_possible(
    subject: Subject,
    changes: Changes,
    rows: Ints,
    use: Callable[[Architecture, Ints], None],
    refuse: Callable[[int, TilewiseError], None] = ignore,
) -> None:
    """`use` with the shapes of `rows`: with either sort where they are unlike, with either half where one is impossible."""
    check_alive()  # where all are impossible, each is read by itself
    alone = len(rows) == 1  # a single shape has plain numbers
    try:
        use(subject.read({name: int(each[rows[0]]) if alone else each[rows] for name, each in changes.items()}), rows)
    except (InvalidInput, NotAvailable) as error:
        if alone:
            refuse(int(rows[0]), error)
            return
        first = error.mask if isinstance(error, UnlikeShapes) else np.arange(len(rows)) < len(rows) // 2
        each_possible(subject, changes, rows[first], use, refuse)
        each_possible(subject, changes, rows[~first], use, refuse)


def as_changes(subject: Subject, shapes: Sequence[Mapping[str, int]]) -> Changes:
    """Shapes, each with the sizes that differ from the model's own, as arrays; at least one shape must differ."""
    names = dict.fromkeys(name for shape in shapes for name in shape)
    return {name: np.array([shape.get(name, subject.sizes[name]) for shape in shapes]) for name in names}


def beyond_size(ratio: Floats, parameters: Floats | float) -> Floats:
    """A ratio of times without what fewer parameters give by themselves: a smaller model that is faster is no advice.

    parameters: after over before; more of them are no excuse either
    """
    return ratio / np.minimum(1.0, parameters)


def score(asked: Sequence[Asked], ratio: Floats, cost: Floats) -> Floats:
    """Cost after over cost before: of each GPU that of the workloads' mix of tokens, of all GPUs the one that gains least.

    ratio: (asked, candidates), cost of a token over that of the model as it is; cost: (asked,) that of the model as it is
    """
    gpus: dict[str, list[int]] = {}
    for at, each in enumerate(asked):
        gpus.setdefault(each.gpu.sku.name, []).append(at)
    weights = np.array([each.weight for each in asked]) * cost
    mixes = [weights[rows] @ ratio[rows] / weights[rows].sum() for rows in gpus.values()]
    worst: Floats = np.max(mixes, axis=0)
    return worst


def gains(asked: Sequence[Asked], found: Figures) -> Floats:
    """Score of every candidate but the first, which is the model as it is; NaN for shapes that cannot be."""
    tokens = np.array([each.workload.tokens for each in asked])
    return score(asked, found.time_s[:, 1:] / found.time_s[:, :1], found.time_s[:, 0] / tokens)
