"""Which predictions a response holds: for the metrics."""

from __future__ import annotations

from collections import Counter

from google.protobuf.message import Message

from tilewise.v1.advisor_service_pb2 import BatchPredictResponse, PredictResponse
from tilewise.v1.prediction_pb2 import Trust


def predicted(response: Message) -> Counter[tuple[str, str]]:
    """How many predictions a response holds by (GPU, trust), such as ("mi300x", "datasheet")."""
    if isinstance(response, PredictResponse):
        return Counter((_one(response),))
    if isinstance(response, BatchPredictResponse):
        return Counter(_one(result.response) for result in response.results if result.HasField("response"))
    return Counter()


def _one(response: PredictResponse) -> tuple[str, str]:
    trust = Trust.Name(response.step.prediction.trust).removeprefix("TRUST_").lower()
    return response.gpu.sku, trust
