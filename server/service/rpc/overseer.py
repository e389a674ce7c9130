"""Ends calls that nobody should wait for: whose message does not come, whose answer is not read, whose time is up, whose token was
withdrawn. A call that computes asks by itself (`Call.check`); one that waits for its caller holds a thread and is looked at here."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewise.hwdb.errors import TilewiseError
from tilewise.server.service.rpc.call import Call

LOOK_S = 0.25
ITSELF_S = 1.0  # one that waits for less looks by itself, and can say why it ends
BYTES_PER_S = 2**20  # that a caller reads at least


class Overseer:
    """A call waits for its caller inside `waiting`: for `first_s` until its first message has come, for `stall_s` later."""

    def __init__(self, first_s: float, stall_s: float) -> None:
        self._first_s, self._stall_s = first_s, stall_s
        self._until: dict[int, tuple[float, float, Call, Callable[[], object]]] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="overseer", daemon=True).start()

    @contextmanager
    def waiting(self, call: Call, stop: Callable[[], object] | None = None, for_bytes: int = 0) -> Iterator[None]:
        """stop: what ends the wait where it is not for the caller: as long as the call may last; for_bytes: to be read by it."""
        longest = self._stall_s if call.request_bytes else min(self._first_s, self._stall_s)
        longest += for_bytes / BYTES_PER_S
        now = time.monotonic()
        self._until[id(call)] = (now, now + (math.inf if stop else longest), call, stop or call.context.cancel)
        try:
            yield
        finally:
            self._until.pop(id(call), None)

    def close(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(min(LOOK_S, self._first_s, self._stall_s)):
            now = time.monotonic()
            for key, (since, until, call, stop) in list(self._until.items()):
                reason = "STALLED" if now > until else self._reason(call) if now > since + ITSELF_S else ""
                own = stop == call.context.cancel  # which ends nothing more where the caller has gone
                if reason and key in self._until and (call.context.is_active() or not own):
                    call.reason = reason
                    stop()

    def _reason(self, call: Call) -> str:
        """Why a call is to end; "" where it may go on."""
        try:
            call.check()
        except TilewiseError as error:
            return error.reason
        return ""
