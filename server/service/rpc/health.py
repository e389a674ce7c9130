"""The standard services for probes and tools: health, and the contract by reflection. No token is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection

from tilewise.hwdb.errors import NotFound
from tilewise.server.deadline import check_alive
from tilewise.server.service.rpc.methods import service_names

Response = health_pb2.HealthCheckResponse
LOOK_S = 0.25


class Health:
    """Answers of "" and every service by its full name: SERVING, or NOT_SERVING once told to stop."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def Check(self, request: Any) -> Any:
        if not self._known(request.service):
            message = f"{request.service[:80]!r} is no service of this server: {', '.join(service_names())}"
            raise NotFound(message, reason="UNKNOWN_SERVICE", field="service")
        return Response(status=self._status())

    def Watch(self, request: Any) -> Iterator[Any]:
        """The status, and the next one, for as long as the server lets a call last."""
        if not self._known(request.service):
            yield Response(status=Response.SERVICE_UNKNOWN)
        else:
            yield Response(status=Response.SERVING)
        while not self._stopping.wait(LOOK_S):
            check_alive()
        yield Response(status=Response.NOT_SERVING)

    def enter_graceful_shutdown(self) -> None:
        self._stopping.set()

    def _status(self) -> Any:
        return Response.NOT_SERVING if self._stopping.is_set() else Response.SERVING

    def _known(self, service: str) -> bool:
        return service in ("", *service_names())


class Reflection:
    """Tools such as grpcurl may ask for the contract."""

    def __init__(self) -> None:
        names = (*service_names(), health.SERVICE_NAME, reflection.SERVICE_NAME)
        self._servicer = reflection.ReflectionServicer(names)

    def ServerReflectionInfo(self, requests: Iterator[Any]) -> Iterator[Any]:
        answers: Iterator[Any] = self._servicer.ServerReflectionInfo(requests, None)
        return answers
