"""The standard health service, with threads of its own, so that a busy server is not taken for a dead one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tilewise.server.service.rpc.methods import service_names

SERVING = health_pb2.HealthCheckResponse.SERVING


class Health(health.HealthServicer):  # type: ignore[misc]
    """Answers "" and every service by its full name."""

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=True, experimental_thread_pool=ThreadPoolExecutor(1, "health-watch"))
        for name in ("", *service_names()):
            self.set(name, SERVING)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        return super().Check(request, context)

    Check.experimental_thread_pool = ThreadPoolExecutor(1, "health")  # type: ignore[attr-defined]


def add_health(server: grpc.Server) -> Health:
    servicer = Health()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return servicer


def add_reflection(server: grpc.Server) -> None:
    """Tools such as grpcurl may ask for the contract."""
    names = (*service_names(), health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
