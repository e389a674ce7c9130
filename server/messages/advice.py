"""A RecommendRequest as what server/advise asks for, and its advice as RecommendResponses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.gpu import Gpu
from tilewise.server.advise.advice import Advice, Effect, Kind, Recommendation
from tilewise.server.advise.asked import Asked
from tilewise.server.advise.edits import TOLERANCE
from tilewise.server.advise.recommend import MOST_CANDIDATES, RESULTS, Neighbourhood, Progress, recommend
from tilewise.server.limits import most_candidates
from tilewise.server.messages import report as reports
from tilewise.server.messages.question import gpus_of, subject_of, workload_of
from tilewise.server.messages.words import number, word
from tilewise.server.step.report import Report
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import prediction_pb2
from tilewise.v1.workload_pb2 import Precision

LARGEST_MIX, LARGEST_RESULTS = 8, 1000


def recommend_responses(request: advice.RecommendRequest, database: Database) -> Iterator[advice.RecommendResponse]:
    """Progress while it lasts, then the advice."""
    asked = asked_of(request, database)
    kinds = [Kind(word(advice.AdviceKind.DESCRIPTOR, kind, "kinds")) for kind in request.kinds if kind]
    found = recommend(
        subject_of(request.model),
        asked,
        neighbourhood_of(request.neighbourhood),
        kinds=kinds,
        energy=request.objective == advice.OBJECTIVE_ENERGY,
        results=bounded(request.max_results or RESULTS, "max_results", LARGEST_RESULTS),
    )
    for news in found:
        if isinstance(news, Progress):
            progress = prediction_pb2.Progress(done_count=news.done, total_count=news.total)
            yield advice.RecommendResponse(progress=progress)
        else:
            yield advice_message(news, asked, len(request.workloads), database.version)


def asked_of(request: advice.RecommendRequest, database: Database) -> list[Asked]:
    """GPUs first, then workloads. Raises InvalidInput where there are none or too many."""
    if not 1 <= len(request.workloads) <= LARGEST_MIX:
        message = f"{len(request.workloads)} workloads: 1 to {LARGEST_MIX} are needed"
        raise InvalidInput(message, reason="FIELD_REQUIRED", field="workloads")
    mix = [(workload_of(each.workload), each.weight or 1.0) for each in request.workloads]
    if any(not 0 < weight < inf for _, weight in mix):
        raise InvalidInput("a weight must be above 0 and finite", reason="INVALID_WORKLOAD", field="workloads.weight")
    return [Asked(gpu, workload, weight) for gpu in gpus_of(request.gpus, database) for workload, weight in mix]


def neighbourhood_of(message: advice.Neighbourhood) -> Neighbourhood:
    tolerance = message.max_parameter_change if message.HasField("max_parameter_change") else TOLERANCE
    if not 0 <= tolerance <= 1:
        text = f"max_parameter_change {tolerance} must lie between 0 and 1, where 0.01 is 1 %"
        raise InvalidInput(text, reason="BAD_NEIGHBOURHOOD", field="neighbourhood.max_parameter_change")
    for size in message.tensor_parallel:
        bounded(size, "neighbourhood.tensor_parallel", 1024)
    return Neighbourhood(
        tolerance=tolerance,
        vary=tuple(message.vary),
        keep=tuple(message.keep),
        tensor_parallel=tuple(message.tensor_parallel),
        precisions=tuple(word(Precision.DESCRIPTOR, each, "neighbourhood.precisions") for each in message.precisions),
        memory_bytes=float(message.max_memory_bytes),
        candidates=message.max_candidate_count or min(MOST_CANDIDATES, most_candidates()),
    )


def bounded(value: int, field: str, most: int) -> int:
    if not 1 <= value <= most:
        raise InvalidInput(f"{field} {value} is out of range: 1 to {most}", reason="BAD_NEIGHBOURHOOD", field=field)
    return value


def advice_message(found: Advice, asked: Sequence[Asked], workloads: int, version: str) -> advice.RecommendResponse:
    return advice.RecommendResponse(
        baseline=[
            baseline(each, of.gpu, at % workloads)
            for at, (each, of) in enumerate(zip(found.baseline, asked, strict=True))
        ],
        recommendations=[recommendation(each, asked, workloads) for each in found.recommendations],
        summary=found.summary,
        notes=found.notes,
        candidate_count=found.candidates,
        database_version=version,
    )


def baseline(found: Report, gpu: Gpu, workload: int) -> advice.Baseline:
    return advice.Baseline(
        gpu=found.gpu,
        workload=workload,
        step=reports.step(found.step, found.calibration),
        memory=reports.memory(found, gpu),
    )


def recommendation(found: Recommendation, asked: Sequence[Asked], workloads: int) -> advice.Recommendation:
    changes = [advice.FieldChange(field=field, to=new, **{"from": old}) for field, old, new in found.changes]
    return advice.Recommendation(
        kind=number(advice.AdviceKind.DESCRIPTOR, found.kind.value),
        changes=changes,
        verdict=number(advice.GainVerdict.DESCRIPTOR, found.verdict.value),
        effects=[effect(each, asked[at].gpu.sku.name, at % workloads) for at, each in enumerate(found.effects)],
        parameter_count_change=found.parameter_change,
        memory_bytes_change=found.memory_change,
        cause=found.cause,
        message=found.message,
        total_ratio=found.score,
        total_ratio_low=found.low,
        total_ratio_high=found.high,
    )


def effect(found: Effect, gpu: str, workload: int) -> advice.Effect:
    after = found.after.step
    return advice.Effect(
        gpu=gpu,
        workload=workload,
        time_ratio=found.time_ratio,
        time_ratio_low=found.low,
        time_ratio_high=found.high,
        prediction=reports.prediction(after.time, after.trust, after.wall, after.distance, found.after.calibration),
        energy_ratio=found.energy_ratio,
        step_time_ratio=found.step_ratio,
    )
