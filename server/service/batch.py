"""Many questions in few passes: those that differ in sizes alone are one Architecture whose sizes are arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain

import numpy as np

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError, TooLarge
from tilewise.server.advise.asked import CHUNK
from tilewise.server.architecture import read_with
from tilewise.server.architecture.model import Size
from tilewise.server.architecture.sizes import UnlikeShapes
from tilewise.server.deadline import check_alive
from tilewise.server.messages.question import text_of, workload_of
from tilewise.server.messages.report import Fields, briefs
from tilewise.server.messages.status import to_status
from tilewise.server.operators.lengths import check_length
from tilewise.server.step.predict import predict_many
from tilewise.v1.advisor_service_pb2 import DETAIL_STEP, PredictRequest, PredictResponse, PredictResult

Result = PredictResult | Fields  # as fields of the batch's own message, so that protobuf makes no copy
BYTES_MAX = 60 * 2**20  # of all answers; a message of gRPC has 64 MiB


def results(
    requests: Sequence[PredictRequest], database: Database, predict_one: Callable[[PredictRequest], PredictResponse]
) -> list[Result]:
    """One result a request, in order; an error is the result of its own request alone."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        groups[likeness(request)].append(index)
    found: dict[int, Result] = {}
    room = BYTES_MAX
    for indices in chain.from_iterable(map(chunks, groups.values())):
        group = group_results([requests[index] for index in indices], database, predict_one)
        found.update(zip(indices, group, strict=True))
        room -= sum(result.ByteSize() for result in group if isinstance(result, PredictResult))
        if room < 0:
            message = f"the answers have more than {BYTES_MAX >> 20} MiB; ask for less detail, or in smaller batches"
            raise TooLarge(message, reason="BATCH_TOO_LARGE", field="requests")
    return [found[index] for index in range(len(requests))]


def chunks(indices: list[int]) -> Iterator[list[int]]:
    """In pieces between which the deadline is looked at."""
    return (indices[first : first + CHUNK] for first in range(0, len(indices), CHUNK))


def likeness(request: PredictRequest) -> Hashable:
    """Equal for requests that differ in the values of their overrides alone."""
    model = request.model
    text = model.config_json or model.shape_toml
    workload = request.workload.SerializeToString(deterministic=True)
    asked = request.gpu, request.calibration, request.detail, request.diagnose
    return text, model.name, tuple(sorted(model.overrides)), workload, *asked


def group_results(
    group: list[PredictRequest], database: Database, predict_one: Callable[[PredictRequest], PredictResponse]
) -> list[Result]:
    """Results of requests of one likeness: one pass, a pass for each sort of shapes, or one by one where one is refused."""
    check_alive()
    if group[0].detail <= DETAIL_STEP and not group[0].diagnose and len(group) > 1:
        try:
            return [{"response": response} for response in steps(group, database)]
        except UnlikeShapes as error:
            sorts = [np.flatnonzero(sort).tolist() for sort in (error.mask, ~error.mask)]
            found = [group_results([group[at] for at in sort], database, predict_one) for sort in sorts]
            by_place = dict(zip(chain(*sorts), chain(*found), strict=True))
            return [by_place[at] for at in range(len(group))]
        except TilewiseError:
            pass  # one of the shapes is at fault: each request gets its own answer
    return [outcome(request, predict_one) for request in group]


def outcome(request: PredictRequest, predict_one: Callable[[PredictRequest], PredictResponse]) -> PredictResult:
    check_alive()
    try:
        return PredictResult(response=predict_one(request))
    except TilewiseError as error:
        return PredictResult(error=to_status(error))


def steps(group: Sequence[PredictRequest], database: Database) -> list[Fields]:
    """Fields of answers at DETAIL_STEP to requests of one likeness, from one pass over all their shapes."""
    first = group[0]
    gpu, workload = database.gpu(first.gpu, first.calibration), workload_of(first.workload)
    architecture = read_with(text_of(first.model), sizes_of(group), first.model.name)
    check_length(architecture, workload)
    return briefs(predict_many(gpu, architecture, workload).briefs(len(group)), gpu, workload, database.version)


def sizes_of(group: Sequence[PredictRequest]) -> dict[str, Size]:
    """The overrides of requests that override the same sizes: an array for each, plain numbers for a single request."""
    asked = [dict(request.model.overrides) for request in group]
    if len(asked) == 1:
        return dict(asked[0])
    return {name: np.array([each[name] for each in asked], np.int64) for name in asked[0]}
