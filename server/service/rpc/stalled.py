"""Ends calls whose caller neither sends what it owes nor reads what it is sent: they would hold a thread for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.server.service.rpc.call import Call

LOOK_S = 0.5


class Stalled:
    """A call is waited for inside `waiting`; one that takes longer than `limit_s` there is cancelled."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[int, tuple[float, Call]] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="stalled", daemon=True).start()

    @contextmanager
    def waiting(self, call: Call) -> Iterator[None]:
        self._since[id(call)] = (time.monotonic(), call)
        try:
            yield
        finally:
            self._since.pop(id(call), None)

    def close(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(min(LOOK_S, self._limit_s)):
            now = time.monotonic()
            for since, call in list(self._since.values()):
                if now - since > self._limit_s:
                    call.reason = "STALLED"
                    call.context.cancel()
