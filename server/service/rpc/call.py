"""Call: what is known of one call, from its start to its log line."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from tilewise.server.service.identity.caller import Caller
from tilewise.server.service.rpc.methods import Method

REQUEST_ID = "x-request-id"
GOOD_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(slots=True)
class Call:
    """code is that of gRPC, "OK" unless something went wrong; times are of time.monotonic()."""

    method: Method
    context: grpc.ServicerContext
    arrived: float
    request_id: str
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    caller: Caller | None = None
    code: str = "OK"
    reason: str = ""
    request_bytes: int = 0
    response_bytes: int = 0
    cached: bool = False
    predictions: tuple[tuple[str, str], ...] = ()  # (GPU, trust) of each

    @property
    def seconds(self) -> float:
        """From the first byte to the last, waiting included."""
        return self.ended - self.arrived

    @property
    def waited_s(self) -> float:
        return self.began - self.arrived

    def alive(self, limit_s: float) -> Callable[[], bool]:
        """Whether somebody waits for the answer, and the server's own limit has not passed."""
        last = self.arrived + limit_s
        return lambda: self.context.is_active() and time.monotonic() < last


Observer = Callable[[Call], None]


def begun(method: Method, context: grpc.ServicerContext, arrived: float) -> Call:
    return Call(method, context, arrived, request_id(context))


def request_id(context: grpc.ServicerContext) -> str:
    """The caller's own, where it is a fair one, else a new one; the answer and the log line carry it."""
    for key, value in context.invocation_metadata():
        if key == REQUEST_ID and isinstance(value, str) and GOOD_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)
