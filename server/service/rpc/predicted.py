"""Which predictions a response holds: for the metrics."""

from __future__ import annotations

from google.protobuf.message import Message

from tilewise.v1.advisor_service_pb2 import BatchPredictResponse, PredictResponse
from tilewise.v1.prediction_pb2 import Trust


def predicted(response: Message) -> tuple[tuple[str, str], ...]:
    """(GPU, trust) of every prediction in a response, such as ("mi300x", "datasheet")."""
    if isinstance(response, PredictResponse):
        return (_one(response),)
    if isinstance(response, BatchPredictResponse):
        return tuple(_one(result.response) for result in response.results if result.HasField("response"))
    return ()


def _one(response: PredictResponse) -> tuple[str, str]:
    trust = Trust.Name(response.step.prediction.trust).removeprefix("TRUST_").lower()
    return response.gpu.sku, trust
