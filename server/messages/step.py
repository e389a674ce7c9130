"""A StepTable as PredictResponses at DETAIL_STEP, one a candidate shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.server.architecture import Architecture, ParameterCount
from tilewise.server.messages.enums import TRUSTS, WALLS
from tilewise.server.messages.gpu import gpu_message, peak_message
from tilewise.server.messages.question import workload_message
from tilewise.server.messages.report import walls
from tilewise.server.report import StepTable
from tilewise.server.workload import Workload
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.model_pb2 import ModelSummary
from tilewise.v1.prediction_pb2 import Prediction
from tilewise.v1.report_pb2 import Memory, Step


def step_messages(
    table: StepTable,
    gpu: Gpu,
    architecture: Architecture,
    parameters: ParameterCount,
    workload: Workload,
    count: int,
    version: str,
) -> list[PredictResponse]:
    """The answers of `count` candidates, in their order."""
    shared: dict[str, Any] = {
        "workload": workload_message(workload),
        "gpu": gpu_message(gpu),
        "database_version": version,
    }
    summaries = summary_messages(architecture, parameters, count)
    memories = memory_messages(table, gpu, count)
    steps = step_rows(table, workload, gpu.calibration.id if gpu.calibration else "", count)
    return [
        PredictResponse(architecture=summary, step=step, memory=memory, **shared)
        for summary, step, memory in zip(summaries, steps, memories, strict=True)
    ]


def column(values: Any, count: int) -> list[Any]:
    """A scalar or an array of shape (candidates,) as `count` Python numbers."""
    numbers: list[Any] = np.broadcast_to(values, count).tolist()
    return numbers


def summary_messages(architecture: Architecture, parameters: ParameterCount, count: int) -> Iterator[ModelSummary]:
    for total, active in zip(column(parameters.total, count), column(parameters.active, count), strict=True):
        yield ModelSummary(
            name=architecture.name or architecture.model_type,
            family=architecture.family,
            model_type=architecture.model_type,
            parameter_count=total,
            active_parameter_count=active,
        )


def memory_messages(table: StepTable, gpu: Gpu, count: int) -> Iterator[Memory]:
    capacity = int(gpu.sku.memory_bytes)
    for total, fits in zip(column(table.peak_memory_bytes, count), column(table.fits, count), strict=True):
        yield Memory(total_bytes=int(total), capacity_bytes=capacity, fits=fits, free_bytes=capacity - int(total))


def step_rows(table: StepTable, workload: Workload, calibration: str, count: int) -> Iterator[Step]:
    numbers = {proto: column(getattr(table, name), count) for proto, name in FIGURES.items()}
    timed = {proto: column(getattr(table, name), count) for proto, name in TIMED.items()}
    refusals = column(table.refusal, count)
    walls_s = np.broadcast_to(table.walls_s, (len(table.walls_s), count)).T.tolist()
    peak, predictions = peak_message(table.peak), prediction_rows(table, calibration, count)
    for row, prediction in enumerate(predictions):
        known = prediction is not None
        yield Step(
            prediction=prediction,
            token_count=workload.tokens,
            peak=peak,
            walls=walls(walls_s[row]) if known else (),
            refusal=table.refusals[refusals[row]] if not known else "",
            **{name: values[row] for name, values in numbers.items()},
            **({name: values[row] for name, values in timed.items()} if known else {}),
        )


def prediction_rows(table: StepTable, calibration: str, count: int) -> Iterator[Prediction | None]:
    names = ("time_s", "low_s", "high_s", "trust", "distance", "wall", "refusal")
    columns = (column(getattr(table, name), count) for name in names)
    for time, low, high, trust, distance, wall, refusal in zip(*columns, strict=True):
        yield (
            None
            if refusal >= 0
            else Prediction(
                time_s=time,
                time_low_s=low,
                time_high_s=high,
                trust=TRUSTS[trust],
                calibration=calibration,
                distance=None if math.isnan(distance) else distance,
                wall=WALLS[wall],
            )
        )


# fields of Step and the columns of StepTable that fill them; TIMED are unset where there is no time
FIGURES = {
    "model_flops": "flops",
    "executed_flops": "executed_flops",
    "traffic_bytes": "memory_bytes",
    "issue_s": "issue_s",
    "kernel_count": "launches",
}
TIMED = {"busy_s": "busy_s", "tokens_per_s": "tokens_per_s", "mfu": "mfu", "hfu": "hfu", "mbu": "mbu"}
