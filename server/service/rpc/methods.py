"""Every method of tilewise.v1, read from the contract itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tilewise.v1 import advisor_service_pb2, calibration_service_pb2, hardware_service_pb2

FILES = (hardware_service_pb2, advisor_service_pb2, calibration_service_pb2)
SHORT = ("Predict", "Get", "List")  # a few milliseconds each; all others may take long


@dataclass(frozen=True, slots=True)
class Method:
    """path: "/tilewise.v1.AdvisorService/Predict"; title: "AdvisorService/Predict"."""

    path: str
    service: str
    name: str
    request: type[Message]
    client_streams: bool
    server_streams: bool

    @property
    def title(self) -> str:
        return f"{self.service}/{self.name}"

    @property
    def short(self) -> bool:
        return self.name.startswith(SHORT) and not (self.client_streams or self.server_streams)


def methods() -> Iterator[Method]:
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield Method(
                    path=f"/{service.full_name}/{method.name}",
                    service=service.name,
                    name=method.name,
                    request=GetMessageClass(method.input_type),
                    client_streams=method.client_streaming,
                    server_streams=method.server_streaming,
                )


def service_names() -> tuple[str, ...]:
    """Full names of the services, such as "tilewise.v1.AdvisorService"."""
    return tuple(service.full_name for file in FILES for service in file.DESCRIPTOR.services_by_name.values())
