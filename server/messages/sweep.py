"""A SweepRequest as what server/advise asks for, and what it finds as SweepResponses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, OutOfRange
from tilewise.server.advise.cliffs import Cliff, cliffs
from tilewise.server.advise.sweep import Axis, Pass, grid, sweep
from tilewise.server.architecture.sizes import column
from tilewise.server.deadline import check_alive
from tilewise.server.limits import check_candidates
from tilewise.server.messages.question import gpus_of, subject_of, workload_of
from tilewise.server.messages.report import prediction
from tilewise.server.messages.status import to_status
from tilewise.server.step.memory import room_bytes
from tilewise.server.step.predict import Shapes, calibration_of
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1.prediction_pb2 import Progress


def sweep_responses(request: advice.SweepRequest, database: Database) -> Iterator[advice.SweepResponse]:
    """Points as they are ready, with progress; those of one GPU and workload in the order of the grid; cliffs at the end."""
    subject, workload, gpus = subject_of(request.model), workload_of(request.workload), gpus_of(request.gpus, database)
    axes = [axis_of(axis) for axis in request.axes]
    points = grid(axes)
    total, done = len(points) * len(gpus), 0
    time_s = {gpu.sku.name: np.full(len(points), np.nan) for gpu in gpus}
    flops = {gpu.sku.name: np.full(len(points), np.nan) for gpu in gpus}
    yield advice.SweepResponse(database_version=database.version, progress=Progress(total_count=total))
    for passes in sweep(subject, workload, gpus, axes):
        ready: dict[int, advice.SweepPoint] = {}
        for found in passes:
            if found.shapes is not None:
                time_s[found.gpu.sku.name][found.at] = found.shapes.steps.time_s
                flops[found.gpu.sku.name][found.at] = found.shapes.steps.causal_flops
            ready |= zip(found.at.tolist(), point_messages(found, points), strict=True)
        done += len(ready)
        yield advice.SweepResponse(
            points=[ready[at] for at in sorted(ready)], progress=Progress(done_count=done, total_count=total)
        )
    steep = [
        cliff
        for gpu in gpus
        for cliff in cliffs(subject, workload, gpu, axes, time_s[gpu.sku.name], flops[gpu.sku.name], check_alive)
    ]
    yield advice.SweepResponse(cliffs=map(cliff_message, steep), progress=Progress(done_count=total, total_count=total))


def axis_of(message: advice.Axis) -> Axis:
    """Raises InvalidInput where an axis has no values, and TooLarge where it has too many."""
    if not message.field:
        raise InvalidInput("an axis needs the name of a size", reason="FIELD_REQUIRED", field="axes")
    if message.values:
        return Axis(message.field, tuple(message.values))
    first, last, step = message.range.first, message.range.last, message.range.step or 1
    if first < 1 or last < first or step < 1:
        text = (
            f"{message.field} from {first} to {last} by {step}: first must be 1 or more, last no less, step 1 or more"
        )
        raise InvalidInput(text, reason="BAD_AXIS", field="axes")
    check_candidates((last - first) // step + 1, "axes")
    return Axis(message.field, tuple(range(first, last + 1, step)))


def point_messages(found: Pass, points: list[tuple[int, ...]]) -> Iterator[advice.SweepPoint]:
    sku = found.gpu.sku
    if found.shapes is None:
        error = to_status(found.error) if found.error else None
        yield from (advice.SweepPoint(values=points[at], gpu=sku.name, error=error) for at in found.at)
        return
    room = room_bytes(sku.memory_bytes, found.shapes.steps.workload)
    rows = zip(found.at.tolist(), *_columns(found.shapes, len(found.at)), strict=True)
    for at, refusal, time, trust, wall, distance, mfu, rate, parameters, memory in rows:
        point = advice.SweepPoint(
            values=points[at], gpu=sku.name, parameter_count=int(parameters), memory_bytes=int(memory),
            prediction=prediction(time, trust, wall, distance, calibration_of(found.gpu)),
        )  # fmt: skip
        if refusal:
            point.error.CopyFrom(to_status(OutOfRange(refusal, reason="OUT_OF_RANGE")))
        else:
            point.mfu, point.tokens_per_s, point.fits = mfu, rate, memory <= room
        yield point


def _columns(found: Shapes, count: int) -> list[list[Any]]:
    """What a point says, column by column."""
    steps = found.steps
    refusals, *others = (
        steps.column(name, count) for name in ("refusal", "trust", "wall", "distance", "mfu", "tokens_per_s")
    )
    sizes = column(found.parameters.total, count), column(found.memory.total_bytes, count)
    return [refusals, steps.intervals(count), *others, *sizes]


def cliff_message(cliff: Cliff) -> advice.Cliff:
    return advice.Cliff(
        field=cliff.field, gpu=cliff.gpu, good_value=cliff.good, bad_value=cliff.bad, time_ratio=cliff.time_ratio,
        cause=cliff.cause, message=cliff.message,
    )  # fmt: skip
