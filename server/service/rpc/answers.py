"""Answers that were given before: CI fleets and planners ask the same question again and again.

The key is the request's very bytes, the tenant and the revision of the store, which only ever grows, so an answer of before a
promotion is never given after it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from google.protobuf.message import Message

from tilewise.hwdb.record import Record
from tilewise.v1.advisor_service_pb2 import BatchPredictResponse, PredictResponse
from tilewise.v1.prediction_pb2 import Trust

Key = tuple[str, int, bytes]
OVERHEAD = 400  # bytes of an entry beside its key and answer
LARGEST_SHARE = 16  # an entry larger than this part of the whole is not kept


class Answer(Record):
    """The answer as it goes over the wire, and the (GPU, trust) of its predictions, which are counted."""

    content: bytes
    predictions: Counter[tuple[str, str]]


class Answers:
    """Keeps what was asked for last, within a number of bytes; the tenant that holds most makes room, so that none crowds out others."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._lock = bytes_max, threading.Lock()
        self._kept: dict[str, OrderedDict[Key, Answer]] = {}
        self._bytes: Counter[str] = Counter()  # by tenant

    def get(self, key: Key) -> Answer | None:
        with self._lock:
            own = self._kept.get(key[0])
            if own is None or key not in own:
                return None
            own.move_to_end(key)
            return own[key]

    def put(self, key: Key, answer: Answer) -> None:
        size = _size(key, answer)
        if size * LARGEST_SHARE > self._bytes_max:
            return
        with self._lock:
            own = self._kept.setdefault(key[0], OrderedDict())
            if key in own:
                return
            own[key] = answer
            self._bytes[key[0]] += size
            while self._bytes.total() > self._bytes_max:
                self._make_room(max(self._bytes, key=self._bytes.__getitem__))

    def _make_room(self, tenant: str) -> None:
        """Within the lock."""
        self._bytes[tenant] -= _size(*self._kept[tenant].popitem(last=False))
        if not self._bytes[tenant]:
            del self._bytes[tenant], self._kept[tenant]


def _size(key: Key, answer: Answer) -> int:
    return len(key[2]) + len(answer.content) + OVERHEAD


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
