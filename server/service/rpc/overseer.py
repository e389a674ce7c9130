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


class Overseer:
    """A call waits for its caller inside `waiting`: for `first_s` until its first message has come, for `stall_s` later."""

    def __init__(self, first_s: float, stall_s: float) -> None:
        self._first_s, self._stall_s = first_s, stall_s
        self._until: dict[int, tuple[float, Call, Callable[[], object]]] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="overseer", daemon=True).start()

    @contextmanager
    def waiting(self, call: Call, stop: Callable[[], object] | None = None) -> Iterator[None]:
        """stop: what ends the wait where it is not for the caller: as long as the call may last."""
        longest = self._stall_s if call.request_bytes else min(self._first_s, self._stall_s)
        until = time.monotonic() + (math.inf if stop else longest)
        self._until[id(call)] = (until, call, stop or call.context.cancel)
        try:
            yield
        finally:
            self._until.pop(id(call), None)

    def close(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(min(LOOK_S, self._first_s, self._stall_s)):
            now = time.monotonic()
            for key, (until, call, stop) in list(self._until.items()):
                reason = self._reason(call, now > until)
                if reason and key in self._until and call.context.is_active():  # not if it went on in between
                    call.reason = reason
                    stop()

    def _reason(self, call: Call, late: bool) -> str:
        """Why a call is to end; "" where it may go on."""
        try:
            call.check()
        except TilewiseError as error:
            return error.reason
        return "STALLED" if late else ""
