"""Router: every method of the contract, with identity, role, limits and errors around the service that answers it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from tilewise.hwdb.errors import InvalidInput, Overloaded, TilewiseError, TooLarge
from tilewise.server.deadline import check_alive, waited_for
from tilewise.server.limits import limited_to
from tilewise.server.messages.entrance import check_message
from tilewise.server.messages.status import to_status
from tilewise.server.service.identity.caller import Caller, Role, authorise
from tilewise.server.service.identity.identify import Identify
from tilewise.server.service.rpc.answers import Answer, Answers, predicted
from tilewise.server.service.rpc.apart import Apart, Told, takes_long
from tilewise.server.service.rpc.call import REQUEST_ID, Call, Observer, host, request_id
from tilewise.server.service.rpc.lanes import Lane, Lanes
from tilewise.server.service.rpc.methods import Method, methods, standard
from tilewise.server.service.rpc.overseer import Overseer
from tilewise.server.service.tenants import Tenants

log = logging.getLogger(__name__)

REMEMBERED = ("Predict",)  # pure functions of request, tenant and database
SLICE_S = 0.25  # of a turn, until those go first who have had less
SHORT_BYTES = 2 * 2**20  # of a message on the short lane: a text of a megabyte and its sizes
OPEN_BYTES = 64 * 2**10
PUSHBACK = "grpc-retry-pushback-ms"  # gRPC's own clients wait that long before another try


class Router(grpc.GenericRpcHandler):
    """Answers every call; each observer is told of each call when it has ended."""

    def __init__(
        self, tenants: Tenants, identify: Identify | Told, lanes: Lanes, answers: Answers, overseer: Overseer,
        observers: Sequence[Observer], candidates: int, open_services: Mapping[str, object], apart: Apart | None,
    ) -> None:  # fmt: skip
        """candidates: shapes that one request may have predicted; open_services: standard ones by name, which need no token;
        apart: where long work is done; None: here."""
        self._tenants, self._identify, self._lanes = tenants, identify, lanes
        self._answers, self._overseer, self.observers = answers, overseer, list(observers)
        self._candidates, self._open, self._apart = candidates, open_services, apart
        offered = (*methods(), *(method for method in standard() if method.service in open_services))
        self._methods = {method.path: method for method in offered}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """How a call is handled, decided before it takes a thread.

        On the wire a single request is a stream of one: taking every request as a stream lets us turn a stranger away
        before the message is read, and end a call whose message never comes.
        """
        method = self._methods.get(details.method)
        if method is None:
            return None
        lane = self._lanes.by_name[method.lane]
        arrived, error = time.monotonic(), self._refusal(method, lane, details)
        if error is not None:
            turn_away: Any = partial(self._turn_away, method, lane, arrived, error)
            turn_away.experimental_thread_pool = self._lanes.turned_away
            return grpc.stream_unary_rpc_method_handler(turn_away)
        held = (
            method.server_streams or method.lane == "long"
        )  # until its answer is read; on the wire one is a stream of one
        behaviour: Any = partial(self._stream if held else self._single, method, lane, arrived)
        behaviour.experimental_thread_pool = lane.pool
        if held:
            return grpc.stream_stream_rpc_method_handler(behaviour)
        return grpc.stream_unary_rpc_method_handler(behaviour)

    def _refusal(self, method: Method, lane: Lane, details: grpc.HandlerCallDetails) -> TilewiseError | None:
        """Why a call gets no thread: nobody known asks, or too many do."""
        if not method.open and (unknown := self._identify.refusal(details.invocation_metadata)):
            return unknown
        if not lane.full():
            return None
        wait_s = lane.retry_after_s()
        message = f"{method.name} is asked for more often than this server can answer; try again in {wait_s:.2g} s"
        return Overloaded(message, reason="OVERLOADED", retry_after_s=f"{wait_s:.3f}")

    def _begun(self, method: Method, lane: Lane, arrived: float, context: grpc.ServicerContext) -> Call:
        peer = host(context.peer())
        identify = (
            None if method.open else partial(self._identify, context.invocation_metadata(), context.auth_context, peer)
        )
        return Call(method, context, arrived, lane.limit_s, request_id(context), identify)

    def _single(
        self, method: Method, lane: Lane, arrived: float, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> bytes:
        call = self._begun(method, lane, arrived, context)
        try:
            return self._ended(call, lane, self._answer(call, lane, messages))
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            self._fail(call, lane, error)
            return b""  # to nobody: the caller has gone

    def _stream(
        self, method: Method, lane: Lane, arrived: float, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        call = self._begun(method, lane, arrived, context)
        try:
            for content in self._answers_of(call, lane, messages):
                call.response_bytes += len(content)
                with self._overseer.waiting(call, for_bytes=len(content)):
                    yield content
            self._ended(call, lane, b"")
        except GeneratorExit:
            call.code = "CANCELLED"
            self._ended(call, lane, b"")
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a status
            self._fail(call, lane, error)

    def _turn_away(
        self, method: Method, lane: Lane, arrived: float, error: TilewiseError, _: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> bytes:  # fmt: skip
        self._fail(self._begun(method, lane, arrived, context), lane, error)
        return b""  # to nobody

    def _answer(self, call: Call, lane: Lane, messages: Iterator[bytes]) -> bytes:
        """The one answer of a call: remembered, or made."""
        service, caller = self._admitted(call)
        with lane.place(caller):
            return self._only(call, lane, service, messages, caller)

    def _only(self, call: Call, lane: Lane, service: Any, messages: Iterator[bytes], caller: Caller) -> bytes:
        if call.method.client_streams:
            with waited_for(call.check):
                return service(self._requests(call, messages)).SerializeToString()  # type: ignore[no-any-return]
        return self._remembered(call, lane, service, self._one(call, messages), caller)

    def _remembered(self, call: Call, lane: Lane, service: Any, raw: bytes, caller: Caller) -> bytes:
        remembered, revision = call.method.name in REMEMBERED, self._tenants.revision
        key = (caller.tenant, revision, raw)
        found = self._answers.get(key) if remembered else None
        if found is None:
            found = self._made(call, lane, service, raw, caller)
            if remembered and revision == self._tenants.revision:
                self._answers.put(key, found)
        else:
            call.cached = True
        call.predictions = found.predictions
        return found.content

    def _made(self, call: Call, lane: Lane, service: Any, raw: bytes, caller: Caller) -> Answer:
        if self._apart is not None and takes_long(call.method, raw, crowd=lane.crowds(caller)):
            contents = list(self._apart.answers(call, caller, raw, self._tenants.revision))
            return Answer(contents[0], call.predictions)
        with lane.turn(caller), self._limits(call, lane, caller):
            response = service(parsed(call.method, raw))
            return Answer(response.SerializeToString(), predicted(response))

    def _answers_of(self, call: Call, lane: Lane, messages: Iterator[bytes]) -> Iterator[bytes]:
        """The answers of a call that has many, or a large one. While one is read nothing is held but the place."""
        service, caller = self._admitted(call)
        with lane.place(caller):
            if not call.method.server_streams:
                yield self._only(call, lane, service, messages, caller)
                return
            asked: Any = self._requests(call, messages)
            if not call.method.client_streams:
                raw = self._one(call, messages)
                if self._apart is not None and takes_long(call.method, raw):
                    yield from self._apart.answers(call, caller, raw, self._tenants.revision)
                    return
                asked = parsed(call.method, raw)
            responses = iter(service(asked))
            while True:
                with lane.turn(caller), self._limits(call, lane, caller):
                    response = next(responses, None)
                if response is None:
                    return
                call.predictions += predicted(response)
                yield response.SerializeToString()

    @contextmanager
    def _limits(self, call: Call, lane: Lane, caller: Caller) -> Iterator[None]:
        """Within it, work knows how much it may do, and, when it asks whether anybody waits for it, lets others go first."""
        began = time.monotonic()

        def look() -> None:
            nonlocal began
            call.check()
            if time.monotonic() - began > SLICE_S:
                lane.give_way(caller)
                began = time.monotonic()

        with limited_to(self._candidates), waited_for(look):
            check_alive()
            yield

    def _admitted(self, call: Call) -> tuple[Any, Caller]:
        """The service's method for a caller who may call it, and the caller."""
        if call.method.open:
            caller = Caller(host(call.context.peer()), Role.READER)
            return getattr(self._open[call.method.service], call.method.name), caller
        assert call.identify is not None
        call.caller = caller = call.identify()
        authorise(caller, call.method.title)
        return getattr(self._tenants.services(caller)[call.method.service], call.method.name), caller

    def _one(self, call: Call, messages: Iterator[bytes]) -> bytes:
        raw = self._next(call, messages)
        if raw is None:
            raise InvalidInput(f"{call.method.name} came without a request", reason="BAD_MESSAGE")
        return raw

    def _requests(self, call: Call, messages: Iterator[bytes]) -> Iterator[Message]:
        while (raw := self._next(call, messages)) is not None:
            call.check()
            yield parsed(call.method, raw)

    def _next(self, call: Call, messages: Iterator[bytes]) -> bytes | None:
        """The next message; None where no more come. Raises TooLarge (MESSAGE_TOO_LARGE)."""
        with self._overseer.waiting(call):
            raw = next(messages, None)
        if raw is None:
            return None
        call.request_bytes += len(raw) or 1  # an empty message has come, too
        most = {"short": SHORT_BYTES, "long": len(raw)}.get(call.method.lane, OPEN_BYTES)
        if len(raw) > most:
            message = f"the request of {call.method.name} has {len(raw)} bytes; at most {most}"
            raise TooLarge(message, reason="MESSAGE_TOO_LARGE")
        return raw

    def _ended(self, call: Call, lane: Lane, content: bytes) -> bytes:
        call.response_bytes += len(content)
        if call.code == "OK":
            call.context.set_trailing_metadata(((REQUEST_ID, call.request_id),))
        self._tell(call, lane)
        return content

    def _fail(self, call: Call, lane: Lane, error: Exception) -> None:
        """End the call with the status of an error, by an exception that gRPC knows; return where nobody is there."""
        if not call.context.is_active():  # nobody is there to be told
            call.code = "CANCELLED"
            self._tell(call, lane)
            return
        status = status_of(call, error)
        call.code = code_pb2.Code.Name(status.code)
        call.reason = error.reason if isinstance(error, TilewiseError) else type(error).__name__
        self._tell(call, lane)
        wire = rpc_status.to_status(status)
        extra: tuple[tuple[str, str], ...] = ((REQUEST_ID, call.request_id),)
        if isinstance(error, Overloaded):
            extra += ((PUSHBACK, str(int(1000 * float(error.metadata["retry_after_s"])))),)
        call.context.abort_with_status(wire._replace(trailing_metadata=(*wire.trailing_metadata, *extra)))

    def _tell(self, call: Call, lane: Lane) -> None:
        call.ended = time.monotonic()
        lane.took(call.ended - call.began)
        for observe in self.observers:
            observe(call)


def parsed(method: Method, raw: bytes) -> Message:
    """Raises InvalidInput (BAD_MESSAGE) for bytes that are no such message."""
    request = method.request()
    try:
        request.ParseFromString(raw)
    except DecodeError as error:
        message = f"{len(raw)} bytes are no {method.request.DESCRIPTOR.full_name}; compressed ones are not read"
        raise InvalidInput(message, reason="BAD_MESSAGE") from error
    check_message(request)
    return request


def status_of(call: Call, error: Exception) -> Status:
    if isinstance(error, TilewiseError):
        return to_status(error)
    log.error("%s failed, request %s", call.method.title, call.request_id, exc_info=error)
    message = f"{call.method.name} failed; the server's log has the cause under request {call.request_id}"
    return Status(code=code_pb2.INTERNAL, message=message)
