"""Apart: work that takes long, in a process of its own that gives way to this one, so that short calls wait for nobody's interpreter.

It is a server like this one behind a socket in a folder that this user alone may enter, and is told who calls. Deadlines and
cancellation travel with the call; a process that dies is begun anew with the next.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from tilewise.hwdb.confined import go_first
from tilewise.hwdb.errors import Unavailable
from tilewise.hwdb.scratch import Scratch
from tilewise.server.messages.status import from_status
from tilewise.server.service.identity.caller import Caller, Role
from tilewise.server.service.process import Worker
from tilewise.server.service.rpc.call import REQUEST_ID, Call
from tilewise.server.service.rpc.methods import Method
from tilewise.server.service.rpc.overseer import Overseer
from tilewise.server.service.settings import UNIX, Settings
from tilewise.server.service.tenants import Tenants

NICE = 5  # a third of the weight of short calls where both want a core
SERVICE = "AdvisorService"  # computes; the others look up, or have a process of their own already
HEAVY_BYTES = 16 * 2**10  # of a question; real ones have a few thousand, and a value costs up to 20 us
CALLER, REVISION, PREDICTIONS = "tilewise-caller", "tilewise-revision", "tilewise-predictions"
LOOK_S = 0.05
OPTIONS = [("grpc.max_receive_message_length", 64 * 2**20), ("grpc.max_send_message_length", 64 * 2**20)]


def takes_long(method: Method, raw: bytes, *, crowd: bool = False) -> bool:
    """Whether a question may take more than some ten milliseconds, by itself or as one of a crowd."""
    if method.service != SERVICE:
        return False
    return crowd or method.lane == "long" or len(raw) > HEAVY_BYTES or _diagnoses(method, raw)


def _diagnoses(method: Method, raw: bytes) -> bool:
    try:
        return bool(getattr(method.request.FromString(raw), "diagnose", False))
    except DecodeError:
        return False  # and is refused


class Apart:
    """start() begins the process; without it the first call does."""

    def __init__(self, settings: Settings, overseer: Overseer) -> None:
        self._settings, self._overseer = settings, overseer
        self._lock, self._closed = threading.Lock(), False
        self._scratch: Scratch | None = None
        self._worker: Worker | None = None
        self._channel: grpc.Channel | None = None

    def answers(self, call: Call, caller: Caller, raw: bytes, revision: int) -> Iterator[bytes]:
        """The answers to a question, and their predictions in the call. Raises the error of the other process, or Unavailable."""
        metadata = (
            (CALLER, json.dumps([caller.name, caller.role, caller.tenant, caller.host])),
            (REVISION, str(revision)), (REQUEST_ID, call.request_id),
        )  # fmt: skip
        ask: Any = self._opened(call).unary_stream(call.method.path)
        inner = ask(raw, timeout=call.left_s(), metadata=metadata)
        call.context.add_callback(inner.cancel)
        try:
            while (content := self._next(call, inner)) is not None:
                call.check()  # answers that come quickly are never waited for long enough to be looked at
                yield content
            call.predictions += told_predictions(inner.trailing_metadata())
        except grpc.RpcError as error:
            call.check()
            raise _meaning(error) from None
        finally:
            inner.cancel()

    def start(self) -> Worker:
        """The process, begun where there is none. Raises Unavailable once closed."""
        with self._lock:
            if self._closed:
                raise Unavailable("the server is stopping", reason="STOPPING")
            if self._worker is None or not self._worker.up():
                self._end()
                self._scratch = Scratch()
                address = f"{UNIX}{self._scratch.path}/socket"
                own: dict[str, Any] = {
                    "tls_cert": "",
                    "tls_key": "",
                    "tls_client_ca": "",
                    "metrics_address": "",
                    "tracing": False,
                }
                settings = dataclasses.replace(
                    self._settings, address=address, workers=1, apart=False, cache_mib=0, **own
                )
                self._worker = Worker(settings, self._scratch.path, apart=True)
                self._channel = grpc.insecure_channel(address, OPTIONS)
            return self._worker

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _opened(self, call: Call) -> grpc.Channel:
        worker = self.start()
        while not worker.told.wait(LOOK_S):
            call.check()
        channel = self._channel
        if not worker.ready or channel is None:
            raise Unavailable("the process for long work did not come up; the log says why", reason="WORKER_FAILED")
        return channel

    def _next(self, call: Call, inner: Any) -> bytes | None:
        with self._overseer.waiting(call, inner.cancel):
            content: bytes | None = next(inner, None)
            return content

    def _end(self) -> None:
        """Within the lock."""
        if self._channel is not None:
            self._channel.close()
        if self._worker is not None:
            self._worker.end()
        if self._scratch is not None:
            self._scratch.close()
        self._worker = self._channel = self._scratch = None


def _meaning(error: grpc.RpcError) -> Exception:
    status = rpc_status.from_call(error)
    meant = from_status(status) if status is not None else None
    if meant is not None:
        return meant
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Unavailable("the process for long work ended; try again", reason="WORKER_FAILED")
    return RuntimeError(f"the process for long work answered {error.code().name}")  # its own log line has the cause


class Told:
    """Who calls, as the process found out that passes the call on: an Identify of the process apart."""

    local_token = ""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def refusal(self, _: Any) -> None:
        """Nobody else can open the socket."""

    def __call__(self, metadata: Any, _: Callable[[], Mapping[str, Any]], host: str = "") -> Caller:
        said = dict(metadata)
        self._tenants.catch_up(int(said[REVISION]))
        name, role, tenant, of = json.loads(said[CALLER])
        return Caller(name, Role(role), tenant, of)


def tell_predictions(call: Call) -> None:
    """An Observer of the process apart: the other one counts them."""
    if call.code == "OK":
        told = json.dumps([[*key, count] for key, count in call.predictions.items()])
        call.context.set_trailing_metadata(((PREDICTIONS, told),))


def told_predictions(metadata: Any) -> Counter[tuple[str, str]]:
    found = json.loads(dict(metadata or ()).get(PREDICTIONS, "[]"))
    return Counter({(gpu, trust): count for gpu, trust, count in found})


def give_way() -> None:
    """Let other processes of the machine compute first, and be the first to end where memory does."""
    go_first()
    if hasattr(os, "nice"):
        os.nice(NICE)
