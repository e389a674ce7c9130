"""Every method that the server answers: those of tilewise.v1, read from the contract itself, and the standard ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Record
from tilewise.v1 import advisor_service_pb2, calibration_service_pb2, hardware_service_pb2

FILES = (hardware_service_pb2, advisor_service_pb2, calibration_service_pb2)
SHORT = ("Predict", "Get", "List")  # a few milliseconds each; all others may take long
CHANGES = ("Upload", "Publish", "Rollback", "Delete")  # what others see


class Method(Record):
    """path: "/tilewise.v1.AdvisorService/Predict"; title: "AdvisorService/Predict"; open: no identity is asked for."""

    path: str
    service: str
    name: str
    request: type[Message]
    client_streams: bool
    server_streams: bool
    open: bool = False

    @property
    def title(self) -> str:
        return f"{self.service}/{self.name}"

    @cached_property
    def lane(self) -> str:
        """Which of the server's lanes it takes (rpc/lanes.py)."""
        if self.open:
            return "watch" if self.name == "Watch" else "open"
        short = self.name.startswith(SHORT) and not (self.client_streams or self.server_streams)
        return "short" if short else "long"

    @property
    def changes(self) -> bool:
        """Whether it changes what others see."""
        return self.name.startswith(CHANGES)


def methods() -> Iterator[Method]:
    """Those of the contract."""
    for file in FILES:
        yield from _of(file)


def standard() -> Iterator[Method]:
    """Health and reflection."""
    yield from _of(health_pb2, open=True)
    yield from _of(reflection_pb2, open=True)


def _of(file: Any, open: bool = False) -> Iterator[Method]:
    for service in file.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            yield Method(
                path=f"/{service.full_name}/{method.name}",
                service=service.name,
                name=method.name,
                request=GetMessageClass(method.input_type),
                client_streams=method.client_streaming,
                server_streams=method.server_streaming,
                open=open,
            )


def service_names() -> tuple[str, ...]:
    """Full names of the services, such as "tilewise.v1.AdvisorService"."""
    return tuple(service.full_name for file in FILES for service in file.DESCRIPTOR.services_by_name.values())
