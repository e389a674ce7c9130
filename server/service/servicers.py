"""The services of tilewise.v1: translate, call, translate back. No arithmetic and no gRPC here.

Each method takes a request and returns its answer, or raises a TilewiseError. server/service/app.py serves them over gRPC;
the embedded client calls them directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NoReturn

from google.protobuf.message import Message

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, TooLarge, Unimplemented
from tilewise.hwdb.gpu import Gpu
from tilewise.server.deadline import check_alive
from tilewise.server.messages import gpu as messages
from tilewise.server.messages.question import subject_of, workload_of
from tilewise.server.messages.report import report_message
from tilewise.server.operators.lengths import check_length
from tilewise.server.service import batch
from tilewise.server.service.resources import page, resource
from tilewise.server.step.predict import predict
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import hardware_service_pb2 as hardware
from tilewise.v1.check_pb2 import CheckRequest, CheckResponse
from tilewise.v1.gpu_pb2 import Calibration

LARGEST_BATCH = 10_000


def services(database: Database | None = None, who: str = "") -> dict[str, object]:
    """One object for each service of the contract, by name, over a database: the packaged one, or one with a store.

    who: the caller's name for the audit log
    """
    calibrations: object = CalibrationService()
    if database is not None:
        from tilewise.hwdb.served import ServedDatabase

        if isinstance(database, ServedDatabase):
            from tilewise.server.service.uploads import StoredCalibrations

            calibrations = StoredCalibrations(database, who)
    database = database or Database.packaged()
    return {
        "HardwareService": HardwareService(database),
        "AdvisorService": AdvisorService(database),
        "CalibrationService": calibrations,
    }


class HardwareService:
    """Reads the hardware database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ListGpus(self, request: hardware.ListGpusRequest) -> hardware.ListGpusResponse:
        skus, token = page(self._database.skus(), request.page_size, request.page_token)
        gpus = [messages.gpu_with_peaks(self._database.gpu(sku)) for sku in skus]
        return hardware.ListGpusResponse(gpus=gpus, next_page_token=token, database_version=self._database.version)

    def GetGpu(self, request: hardware.GetGpuRequest) -> hardware.GetGpuResponse:
        gpu = self._database.gpu(resource(request.name, "gpus/")[0])
        return hardware.GetGpuResponse(gpu=messages.gpu_with_facts(gpu), database_version=self._database.version)

    def ListCalibrations(self, request: hardware.ListCalibrationsRequest) -> hardware.ListCalibrationsResponse:
        sku = resource(request.parent, "gpus/", field="parent")[0]
        newest_first = sorted(self._database.calibrations(sku), reverse=True)
        ids, token = page(newest_first, request.page_size, request.page_token)
        active = self._database.active(sku)
        found = [message for id in ids if (message := self._listed(sku, id, active))]
        return hardware.ListCalibrationsResponse(calibrations=found, next_page_token=token)

    def _listed(self, sku: str, id: str, active: str | None) -> Calibration | None:
        """None for one whose card cannot be read: it hides no other."""
        check_alive()
        try:
            return messages.calibration_message(self._database.card(sku, id), active)
        except InvalidInput:
            return None

    def GetCalibration(self, request: hardware.GetCalibrationRequest) -> hardware.GetCalibrationResponse:
        sku, id = resource(request.name, "gpus/", "/calibrations/")
        found = self._database.card(sku, id)
        whole = messages.calibration_with_card(found, self._database.active(sku))
        return hardware.GetCalibrationResponse(calibration=whole)


class AdvisorService:
    """Predicts, compares and recommends shapes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def Predict(self, request: advisor.PredictRequest) -> advisor.PredictResponse:
        required(request.gpu, "gpu")
        if request.detail <= advisor.DETAIL_STEP and not request.diagnose:
            return advisor.PredictResponse(**batch.steps([request], self._database)[0])
        gpu, subject = self._database.gpu(request.gpu, request.calibration), subject_of(request.model)
        workload, detailed = workload_of(request.workload), request.detail >= advisor.DETAIL_OPERATORS
        check_length(subject.architecture, workload)
        report = predict(gpu, subject.architecture, workload, detailed=detailed)
        answer = report_message(report, gpu, self._database.version)
        if request.diagnose:
            from tilewise.server.advise.asked import Asked
            from tilewise.server.advise.recommend import remedies
            from tilewise.server.messages.diagnosis import diagnosis

            answer.diagnosis.CopyFrom(diagnosis(gpu, report, remedies(subject, Asked(gpu, workload))))
        return answer

    def BatchPredict(self, request: advisor.BatchPredictRequest) -> advisor.BatchPredictResponse:
        if len(request.requests) > LARGEST_BATCH:
            raise TooLarge(
                f"{len(request.requests)} requests in a batch; at most {LARGEST_BATCH}",
                reason="BATCH_TOO_LARGE",
                field="requests",
            )
        return advisor.BatchPredictResponse(results=batch.results(request.requests, self._database, self.Predict))

    def Sweep(self, request: advice.SweepRequest) -> Iterator[advice.SweepResponse]:
        from tilewise.server.messages.sweep import sweep_responses

        return sweep_responses(request, self._database)

    def Recommend(self, request: advice.RecommendRequest) -> Iterator[advice.RecommendResponse]:
        from tilewise.server.messages.advice import recommend_responses

        return recommend_responses(request, self._database)

    def Check(self, request: CheckRequest) -> CheckResponse:
        from tilewise.server.messages.gate import check_response

        gpu_of = partial(gpu_with, self._database, calibration=request.calibration)
        return check_response(request, gpu_of, self._database.version)


class CalibrationService:
    """Of a server without a store: it takes nothing in."""

    def UploadCalibration(self, requests: object) -> NoReturn:
        raise unimplemented("UploadCalibration")

    def ValidateCalibration(self, request: Message) -> NoReturn:
        raise unimplemented("ValidateCalibration")

    def PublishCalibration(self, request: Message) -> NoReturn:
        raise unimplemented("PublishCalibration")

    def RollbackCalibration(self, request: Message) -> NoReturn:
        raise unimplemented("RollbackCalibration")

    def DeleteCalibration(self, request: Message) -> NoReturn:
        raise unimplemented("DeleteCalibration")

    def ListPublications(self, request: Message) -> NoReturn:
        raise unimplemented("ListPublications")


def gpu_with(database: Database, name: str, calibration: str) -> Gpu:
    """A GPU with a certain calibration if it has it, with none for "datasheet", else as it answers."""
    sku = database.resolve(name).sku
    if calibration == "datasheet":
        return Gpu(database.sku(sku))
    return database.gpu(sku, calibration if calibration in database.calibrations(sku) else "")


def unimplemented(method: str) -> Unimplemented:
    message = f"{method} is part of the contract, but this version of Tilewise does not answer it yet"
    if method.endswith(("Calibration", "Publications")):
        message = f"{method} needs a server that keeps calibrations: tilewise serve --store DIR"
    return Unimplemented(message, reason="UNIMPLEMENTED", method=method)


def required(value: str, field: str) -> str:
    if not value:
        raise InvalidInput(f"{field} is required", reason="FIELD_REQUIRED", field=field)
    return value
