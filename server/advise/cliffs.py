"""Cliffs of a sweep: neighbouring values between which the time for the same work jumps, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.record import Record
from tilewise.hwdb.table import Floats
from tilewise.server.advise.cause import why
from tilewise.server.advise.subject import Subject
from tilewise.server.advise.sweep import OF_WORKLOAD, Axis, predicted
from tilewise.server.step.predict import calibration_of, table_report
from tilewise.server.step.ratio import Timed, ratio_between
from tilewise.server.step.steps import Steps
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
    highest = sorted(found, reverse=True)[: 2 * MOST]
    steps = _steps(subject, workload, gpu, axes, {place for *_, one, other in highest for place in (one, other)})
    told: dict[tuple[str, int, int], Cliff] = {}
    for _, along, before, after in highest:
        if len(told) == MOST:
            break
        look()
        cliff = _looked_into(steps, axes[along], along, before, after, per_work)
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
    steps: Mapping[Place, Steps], axis: Axis, along: int, one: Place, other: Place, per_work: Floats
) -> Cliff | None:
    """The cliff between two places; None where the error of the prediction does not let us tell."""
    good, bad = (one, other) if per_work[one] < per_work[other] else (other, one)
    fast, slow = steps.get(good), steps.get(bad)
    if fast is None or slow is None:
        return None
    ratio = float(np.exp(per_work[bad] - per_work[good]))
    low, middle, _ = ratio_between(fast.gpu, timed(fast), timed(slow))
    if ratio * low / middle < 1:
        return None
    cause = why(table_report(slow), table_report(fast))
    return Cliff(
        field=axis.field, gpu=fast.gpu.sku.name, good=axis.values[good[along]], bad=axis.values[bad[along]],
        time_ratio=ratio, cause=cause.code, message=cause.sentence,
    )  # fmt: skip


def timed(steps: Steps) -> Timed:
    """One step that has a time."""
    (time,) = steps.intervals(1)
    assert time is not None
    return Timed(
        calibration=calibration_of(steps.gpu), workload=steps.workload, time=time, table=steps.table, times=steps.times
    )


def _steps(
    subject: Subject, workload: Workload, gpu: Gpu, axes: Sequence[Axis], places: Iterable[Place]
) -> dict[Place, Steps]:
    """The steps of some places that have a time, each alone, from as few passes as a sweep takes."""
    wanted = sorted(places)
    points = [tuple(axis.values[at] for axis, at in zip(axes, place, strict=True)) for place in wanted]
    found: dict[Place, Steps] = {}
    for each in chain.from_iterable(predicted(subject, workload, [gpu], [axis.field for axis in axes], points)):
        if each.shapes is None:
            continue
        for order, at in enumerate(each.at.tolist()):
            own = {axis.field: value for axis, value in zip(axes, points[at], strict=True) if axis.field in OF_WORKLOAD}
            step = each.shapes.steps.only(order, replace(workload, **own))
            if not step.refusal[0]:
                found[wanted[at]] = step
    return found
