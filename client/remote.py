"""A Tilewise server as a transport: one channel, deadlines, retries, and errors as the TilewiseErrors they were."""

from __future__ import annotations

import json
from importlib import import_module

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from tilewise.hwdb.errors import TilewiseError
from tilewise.server.status import from_status

TIMEOUT_S = {
    "Predict": 10.0,
    "BatchPredict": 60.0,
    "Check": 60.0,
    "UploadCalibration": 120.0,
    "ValidateCalibration": 30.0,
}
OTHER_TIMEOUT_S = 5.0
# A server that restarts or is drained answers UNAVAILABLE for a moment; nothing else is worth a second try.
RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "tilewise.v1.HardwareService"}, {"service": "tilewise.v1.AdvisorService"}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
OPTIONS = [
    ("grpc.service_config", json.dumps(RETRIES)),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 60_000),
]
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ServerError(TilewiseError):
    """The server did not answer, or not in the words of the contract. reason is the gRPC status code's name."""


class Remote:
    """A Transport over one gRPC channel. `secure` unset: TLS unless the server is on the loopback."""

    def __init__(self, server: str, token: str, secure: bool | None) -> None:
        self._server = server
        secure = not on_loopback(server) if secure is None else secure
        if secure:
            self._channel = grpc.secure_channel(server, grpc.ssl_channel_credentials(), OPTIONS)
        else:
            self._channel = grpc.insecure_channel(server, OPTIONS)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._stubs: dict[str, object] = {}

    def __call__(self, service: str, method: str, request: Message) -> Message:
        try:
            call = getattr(self._stub(service), method)
            timeout = TIMEOUT_S.get(method, OTHER_TIMEOUT_S)
            answer: Message = call(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._meaning(error) from error
        return answer

    def close(self) -> None:
        self._channel.close()

    def _stub(self, service: str) -> object:
        if service not in self._stubs:
            snake = service.removesuffix("Service").lower()
            module = import_module(f"tilewise.v1.{snake}_service_pb2_grpc")
            self._stubs[service] = getattr(module, f"{service}Stub")(self._channel)
        return self._stubs[service]

    def _meaning(self, error: grpc.RpcError) -> TilewiseError:
        """The TilewiseError that the service raised, or a ServerError."""
        status = rpc_status.from_call(error)
        meant = from_status(status) if status is not None else None
        if meant is not None:
            return meant
        code, details = error.code().name, error.details()
        return ServerError(f"server {self._server} answered {code}: {details}", reason=code, server=self._server)


def on_loopback(address: str) -> bool:
    return address.rpartition(":")[0] in LOOPBACK
