"""A Tilewise server as a transport: one channel, deadlines, retries, and errors as the TilewiseErrors they were."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from tilewise.client.access import Access, access
from tilewise.client.address import parsed, why
from tilewise.hwdb.errors import Overloaded, TilewiseError
from tilewise.server.messages.status import from_status

TIMEOUT_S = {
    "Predict": 10.0, "BatchPredict": 60.0, "Check": 60.0, "Sweep": 120.0, "Recommend": 120.0,
    # a few seconds of a process of its own, which is many on a machine that others keep busy
    "UploadCalibration": 300.0, "ValidateCalibration": 300.0, "PublishCalibration": 300.0,
    "RollbackCalibration": 30.0, "DeleteCalibration": 30.0,
}  # fmt: skip
OTHER_TIMEOUT_S = 5.0
OVERLOADED_TRIES = 4
# A server that restarts or is drained answers UNAVAILABLE for a moment; nothing else is worth a second try. Only questions
# are asked twice by gRPC itself; an upload goes on where it stopped (client/publish.py).
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{"service": "tilewise.v1.HardwareService"}, {"service": "tilewise.v1.AdvisorService"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}
OPTIONS = [
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 60_000),
]


class ServerError(TilewiseError):
    """The server did not answer, or not in the words of the contract. reason is the gRPC status code's name."""


class Remote:
    """A Transport over one gRPC channel, which spreads calls over all addresses that the server's name has.

    token, secure: unset: as the environment says (client/access.py)
    """

    def __init__(self, server: str, token: str | None = None, secure: bool | None = None) -> None:
        self._server, said = parsed(server)
        allowed = access(self._server, token, said if secure is None else secure)
        self._secure, self._channel = allowed.secure, opened(self._server, allowed)
        self._metadata = [("authorization", f"Bearer {allowed.token}")] if allowed.token else []
        self._stubs: dict[str, object] = {}

    def __call__(self, service: str, method: str, request: Message) -> Message:
        last = time.monotonic() + TIMEOUT_S.get(method, OTHER_TIMEOUT_S)
        for attempt in range(1, OVERLOADED_TRIES + 1):
            try:
                return self._once(service, method, request, last - time.monotonic())
            except Overloaded as error:
                pause_s = float(error.metadata["retry_after_s"]) * random.uniform(1.0, 1.5) * attempt
                if attempt == OVERLOADED_TRIES or time.monotonic() + pause_s > last or not isinstance(request, Message):
                    raise
                time.sleep(pause_s)
        raise AssertionError("not reached")

    def stream(self, service: str, method: str, request: Message) -> Iterator[Message]:
        """The answers as they come; a caller who stops reading cancels the call."""
        id = secrets.token_hex(8)
        call: Any = getattr(self._stub(service), method)
        answers = call(request, timeout=TIMEOUT_S[method], metadata=[*self._metadata, ("x-request-id", id)])
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._meaning(error, id) from error
        finally:
            answers.cancel()

    def close(self) -> None:
        self._channel.close()

    def _once(self, service: str, method: str, request: Message, timeout_s: float) -> Message:
        id = secrets.token_hex(8)
        call: Any = getattr(self._stub(service), method)
        try:
            answer: Message = call(request, timeout=timeout_s, metadata=[*self._metadata, ("x-request-id", id)])
        except grpc.RpcError as error:
            raise self._meaning(error, id) from error
        return answer

    def _stub(self, service: str) -> object:
        if service not in self._stubs:
            snake = service.removesuffix("Service").lower()
            module = import_module(f"tilewise.v1.{snake}_service_pb2_grpc")
            self._stubs[service] = getattr(module, f"{service}Stub")(self._channel)
        return self._stubs[service]

    def _meaning(self, error: grpc.RpcError, id: str) -> TilewiseError:
        """The TilewiseError that the service raised, or a ServerError."""
        status = rpc_status.from_call(error)
        meant = from_status(status) if status is not None else None
        if meant is not None:
            return meant
        code, details = error.code().name, error.details()
        if code == "UNAVAILABLE" and (known := why(self._server, self._secure, details or "")):
            return ServerError(known, reason=code, server=self._server, request_id=id)
        message = f"server {self._server} answered {code}: {details} (request {id})"
        return ServerError(message, reason=code, server=self._server, request_id=id)


def opened(server: str, allowed: Access) -> grpc.Channel:
    if not allowed.secure:
        return grpc.insecure_channel(server, OPTIONS)
    credentials = grpc.ssl_channel_credentials(allowed.ca, allowed.key, allowed.cert)
    return grpc.secure_channel(server, credentials, OPTIONS)
