"""TilewiseClient: the same questions and the same answers, from a server or from this very process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar, cast

from google.protobuf.message import Message

from tilewise.hwdb.errors import OutOfRange
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import hardware_service_pb2 as hardware
from tilewise.v1.check_pb2 import CheckRequest, CheckResponse
from tilewise.v1.prediction_pb2 import Progress

Whole = TypeVar("Whole", advice.SweepResponse, advice.RecommendResponse)
Heard = Callable[[Progress], None]  # is told how far a long call has come


def answered(answers: Sequence[advisor.PredictResponse]) -> None:
    """Raises OutOfRange where a step has no time."""
    refused = [f"{answer.gpu.sku}: {answer.step.refusal}" for answer in answers if answer.step.refusal]
    if refused:
        raise OutOfRange("; ".join(refused), reason="OUT_OF_RANGE")


class Transport(Protocol):
    """Carries one request to a method such as ("AdvisorService", "Predict") and brings its answer."""

    def __call__(self, service: str, method: str, request: Message) -> Message: ...

    def stream(self, service: str, method: str, request: Message) -> Iterator[Message]: ...

    def close(self) -> None: ...


class TilewiseClient:
    """Asks for predictions.

    server: "host:port" of a `tilewise serve`; None: the same service runs in this process, without gRPC
    token:  bearer token for a server; unset: the environment's (tilewise.client.access)
    secure: whether to speak TLS to the server; unset: unless it is on this machine's loopback

    Every method raises the TilewiseError that the service raised; a server that cannot be reached raises ServerError.

        >>> with TilewiseClient() as client:
        ...     client.get_gpu("h100-sxm5-80gb").gpu.memory_bytes
        85520809984.0

    tilewise.Client asks the same in plain Python: keywords instead of messages, and objects as answers.
    """

    def __init__(self, server: str | None = None, *, token: str | None = None, secure: bool | None = None) -> None:
        if server is None:
            from tilewise.client.embedded import Embedded

            self._transport: Transport = Embedded()
        else:
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines about handshakes; ours say what to do
            from tilewise.client.remote import Remote

            self._transport = Remote(server, token, secure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def list_gpus(self) -> hardware.ListGpusResponse:
        """All known GPUs, without their ceilings and facts; however many pages the server takes."""
        whole = hardware.ListGpusResponse()
        while True:
            request = hardware.ListGpusRequest(page_token=whole.next_page_token)
            page = cast(hardware.ListGpusResponse, self._transport("HardwareService", "ListGpus", request))
            whole.ClearField("next_page_token")
            whole.MergeFrom(page)
            if not whole.next_page_token:
                return whole

    def get_gpu(self, name: str) -> hardware.GetGpuResponse:
        """One GPU with every figure and its source, by SKU or by another name that means one SKU alone."""
        request = hardware.GetGpuRequest(name=f"gpus/{name}")
        return cast(hardware.GetGpuResponse, self._transport("HardwareService", "GetGpu", request))

    def list_calibrations(self, sku: str) -> hardware.ListCalibrationsResponse:
        """The calibrations of one GPU, newest first, without their cards."""
        request = hardware.ListCalibrationsRequest(parent=f"gpus/{sku}", page_size=1000)
        return cast(hardware.ListCalibrationsResponse, self._transport("HardwareService", "ListCalibrations", request))

    def get_calibration(self, sku: str, calibration: str) -> hardware.GetCalibrationResponse:
        """One calibration with its card."""
        request = hardware.GetCalibrationRequest(name=f"gpus/{sku}/calibrations/{calibration}")
        return cast(hardware.GetCalibrationResponse, self._transport("HardwareService", "GetCalibration", request))

    def predict(self, request: advisor.PredictRequest) -> advisor.PredictResponse:
        """One prediction."""
        return cast(advisor.PredictResponse, self._transport("AdvisorService", "Predict", request))

    def batch_predict(self, requests: Iterable[advisor.PredictRequest]) -> advisor.BatchPredictResponse:
        """Many predictions; far cheaper than one call each where they differ in sizes alone."""
        batch = advisor.BatchPredictRequest(requests=requests)
        return cast(advisor.BatchPredictResponse, self._transport("AdvisorService", "BatchPredict", batch))

    def check(self, request: CheckRequest) -> CheckResponse:
        """The verdict of a policy over changed configurations."""
        return cast(CheckResponse, self._transport("AdvisorService", "Check", request))

    def sweep(self, request: advice.SweepRequest, heard: Heard | None = None) -> advice.SweepResponse:
        """Every point and cliff of a sweep, in one message."""
        return self._whole("Sweep", request, advice.SweepResponse(), heard)

    def recommend(self, request: advice.RecommendRequest, heard: Heard | None = None) -> advice.RecommendResponse:
        """The advice, in one message."""
        return self._whole("Recommend", request, advice.RecommendResponse(), heard)

    def _whole(self, method: str, request: Message, whole: Whole, heard: Heard | None) -> Whole:
        """The parts of a streamed answer as one."""
        for message in self._transport.stream("AdvisorService", method, request):
            part: Any = message
            if heard is not None and part.HasField("progress"):
                heard(part.progress)
            part.ClearField("progress")
            whole.MergeFrom(part)
        return whole
