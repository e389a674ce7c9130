"""Answers that were given before: CI fleets and planners ask the same question again and again.

The key is the request's very bytes, the tenant and the revision of the store, which only ever grows, so an answer of before a
promotion is never given after it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from tilewise.hwdb.record import Record

Key = tuple[str, int, bytes]
OVERHEAD = 400  # bytes of an entry beside its key and answer
LARGEST_SHARE = 16  # an entry larger than this part of the whole is not kept


class Answer(Record):
    """The answer as it goes over the wire, and the (GPU, trust) of its predictions, which are counted."""

    content: bytes
    predictions: Counter[tuple[str, str]]


class Answers:
    """Keeps what was asked for last, within a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Answer] = OrderedDict()

    def get(self, key: Key) -> Answer | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Key, answer: Answer) -> None:
        size = _size(key, answer)
        if size * LARGEST_SHARE > self._bytes_max:
            return
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = answer
            self._bytes += size
            while self._bytes > self._bytes_max:
                self._bytes -= _size(*self._kept.popitem(last=False))


def _size(key: Key, answer: Answer) -> int:
    return len(key[2]) + len(answer.content) + OVERHEAD
