"""Cliffs of a sweep: neighbouring values between which the time for the same work jumps, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats
from tilewise.server.advise.cause import why
from tilewise.server.advise.subject import Subject
from tilewise.server.advise.sweep import OF_WORKLOAD, Axis
from tilewise.server.step.predict import predict
from tilewise.server.step.ratio import ratio_of
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload

LEAST = 0.03  # a jump of the time for the same work that deserves a mark
SLOPE = 1.5  # times the step of the size itself: what time may do anyway when a size that costs nothing grows
MOST = 40  # cliffs that are told, the highest first; twice as many jumps are looked into


class Cliff(Record, kw_only=True):
    """time_ratio: time for the same work at `bad` over that at `good`, its neighbour; cause, message: as of advice."""

    field: str
    gpu: str
    good: int
    bad: int
    time_ratio: float
    cause: str
    message: str


def cliffs(
    subject: Subject,
    workload: Workload,
    gpu: Gpu,
    axes: Sequence[Axis],
    time_s: Floats,
    flops: Floats,
    look: Callable[[], None],
) -> list[Cliff]:
    """The cliffs along every axis, the highest first; between the same two values only the highest counts.

    time_s, flops: of every point of the grid, NaN where refused; look: called before each that is looked into
    """
    shape = [len(axis.values) for axis in axes]
    per_work = np.log(time_s / flops).reshape(shape)
    found = [each for along, axis in enumerate(axes) for each in _jumps(axis, along, per_work)]
    told: dict[tuple[str, int, int], Cliff] = {}
    for _, along, before, after in sorted(found, reverse=True)[: 2 * MOST]:
        if len(told) == MOST:
            break
        look()
        cliff = _looked_into(subject, workload, gpu, axes, along, before, after, per_work)
        if cliff is not None:
            told.setdefault((cliff.field, cliff.good, cliff.bad), cliff)
    return list(told.values())


Place = tuple[int, ...]


def _jumps(axis: Axis, along: int, per_work: Floats) -> list[tuple[float, int, Place, Place]]:
    """(height, axis, place, next place) of every jump that is higher than the step of the size explains."""
    values = np.array(axis.values, float)
    steps = abs(np.diff(np.log(values)))
    if len(values) < 2:
        return []
    heights = np.diff(per_work, axis=along)
    allowed = np.maximum(np.log1p(LEAST), SLOPE * steps).reshape(
        [-1 if at == along else 1 for at in range(per_work.ndim)]
    )
    places = np.argwhere(np.nan_to_num(abs(heights)) > allowed)
    return [
        (
            float(abs(heights[tuple(place)])),
            along,
            tuple(place.tolist()),
            tuple((place + (np.arange(per_work.ndim) == along)).tolist()),
        )
        for place in places
    ]


def _looked_into(
    subject: Subject,
    workload: Workload,
    gpu: Gpu,
    axes: Sequence[Axis],
    along: int,
    one: Place,
    other: Place,
    per_work: Floats,
) -> Cliff | None:
    """The cliff between two places; None where the error of the prediction does not let us tell."""
    good, bad = (one, other) if per_work[one] < per_work[other] else (other, one)
    try:
        fast, slow = (_report(subject, workload, gpu, axes, place) for place in (good, bad))
    except TilewiseError:
        return None
    if fast.step.time is None or slow.step.time is None:
        return None
    ratio = float(np.exp(per_work[bad] - per_work[good]))
    low, middle, _ = ratio_of(gpu, fast, slow)
    if ratio * low / middle < 1:
        return None
    cause = why(slow, fast)
    values = axes[along].values
    return Cliff(
        field=axes[along].field, gpu=gpu.sku.name, good=values[good[along]], bad=values[bad[along]], time_ratio=ratio,
        cause=cause.code, message=cause.sentence,
    )  # fmt: skip


def _report(subject: Subject, workload: Workload, gpu: Gpu, axes: Sequence[Axis], place: Place) -> Report:
    point = {axis.field: axis.values[at] for axis, at in zip(axes, place, strict=True)}
    work = {field: value for field, value in point.items() if field in OF_WORKLOAD}
    sizes = {field: value for field, value in point.items() if field not in OF_WORKLOAD}
    return predict(gpu, subject.read(sizes), replace(workload, **work))
