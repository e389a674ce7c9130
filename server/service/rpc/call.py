"""Call: what is known of one call, from its start to its log line."""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote

import grpc

from tilewise.hwdb.errors import Expired, Unauthenticated
from tilewise.server.service.identity.caller import Caller
from tilewise.server.service.rpc.methods import Method

REQUEST_ID = "x-request-id"
GOOD_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
LOOK_S = 1.0  # between two looks at whether a caller may still call


@dataclass(slots=True)
class Call:
    """code is that of gRPC, "OK" unless something went wrong; times are of time.monotonic().

    identify: who calls, asked again while the call lasts; raises Unauthenticated
    """

    method: Method
    context: grpc.ServicerContext
    arrived: float
    limit_s: float
    request_id: str
    identify: Callable[[], Caller] | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    looked: float = 0.0
    caller: Caller | None = None
    code: str = "OK"
    reason: str = ""
    request_bytes: int = 0
    response_bytes: int = 0
    cached: bool = False
    predictions: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (GPU, trust)

    @property
    def seconds(self) -> float:
        """From the first byte to the last, waiting included."""
        return self.ended - self.arrived

    @property
    def waited_s(self) -> float:
        return self.began - self.arrived

    def left_s(self) -> float:
        """Until the caller's deadline, or the end of what the server gives it."""
        left = self.arrived + self.limit_s - time.monotonic()
        asked = self.context.time_remaining()
        return left if asked is None else min(left, asked)

    def check(self) -> None:
        """Raises Expired where nobody waits or the time is up, and Unauthenticated where the caller may no longer call."""
        now = time.monotonic()
        if not self.context.is_active():
            raise Expired("the deadline passed or the call was cancelled", reason="EXPIRED")
        if now > self.arrived + self.limit_s:
            message = f"{self.method.name} took longer than the {self.limit_s:g} s that this server gives it"
            raise Expired(message, reason="EXPIRED")
        if self.identify is not None and self.caller is not None and now - self.looked > LOOK_S:
            if self.identify() != self.caller:
                raise Unauthenticated("the token now means another caller; call again", reason="CALLER_CHANGED")
            self.looked = now


Observer = Callable[[Call], None]


def request_id(context: grpc.ServicerContext) -> str:
    """The caller's own, where it is a fair one, else a new one; the answer and the log line carry it."""
    for key, value in context.invocation_metadata():
        if key == REQUEST_ID and isinstance(value, str) and GOOD_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)


def host(peer: str) -> str:
    """Whose connection it is, without its port: "ipv4:10.0.0.7:5001" is 10.0.0.7; of IPv6 the network of one site (/64)."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    address = ip_address(unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))
