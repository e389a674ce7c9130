"""The service in the client's own process: no socket, no gRPC, the same servicers."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from tilewise.server.messages.entrance import check_message
from tilewise.server.service.servicers import services


class Embedded:
    """A Transport that calls the servicers."""

    def __init__(self) -> None:
        self._services = services()

    def __call__(self, service: str, method: str, request: Message) -> Message:
        check_message(request)
        answer: Message = getattr(self._services[service], method)(request)
        return answer

    def stream(self, service: str, method: str, request: Message) -> Iterator[Message]:
        check_message(request)
        yield from getattr(self._services[service], method)(request)

    def close(self) -> None:
        """Nothing is held."""
