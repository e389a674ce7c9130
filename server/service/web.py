"""A small page for machines that do not speak gRPC: /metrics for Prometheus, /livez and /readyz for probes."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.settings import split_address

TEXT = "text/plain; version=0.0.4; charset=utf-8"
SLOW_S = 5.0  # a client that has not sent its request and read its page by then is dropped
AT_ONCE, OF_HOST = 64, 8  # pages; who comes beside them is dropped


class Bounded(ThreadingHTTPServer):
    """So many clients at a time, each for SLOW_S."""

    daemon_threads = True
    request_queue_size = 128  # that wait to be let in; beyond it a client tries again after a second

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock, self._hosts = threading.Lock(), Counter[str]()

    def process_request(self, request: Any, client_address: Any) -> None:
        host = client_address[0]
        with self._lock:
            full = self._hosts.total() >= AT_ONCE or self._hosts[host] >= OF_HOST
            self._hosts[host] += not full
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(SLOW_S, self._drop, (request,))
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            with self._lock:
                self._hosts[client_address[0]] -= 1
                self._hosts += Counter()  # forgets who has none

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or was dropped is nobody's concern."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _drop(self, request: socket.socket) -> None:
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class Web:
    """Serves in threads of its own until closed.

    metrics: the page of /metrics; ready: whether calls should be sent here
    """

    def __init__(self, address: str, metrics: Callable[[], bytes], ready: Callable[[], bool]) -> None:
        """Raises InvalidInput (BAD_ADDRESS) where the address is taken."""
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, metrics()),
            "/livez": lambda: (200, b"alive\n"),
            "/readyz": lambda: (200, b"ready\n") if ready() else (503, b"not ready\n"),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOW_S

            def do_GET(self) -> None:
                code, content = pages.get(self.path.partition("?")[0], lambda: (404, b"not found\n"))()
                self.send_response(code)
                self.send_header("Content-Type", TEXT)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Probes come every few seconds; nobody reads about them."""

        try:
            self._server = Bounded(split_address(address, "metrics_address"), Handler)
        except OSError as error:
            message = f"cannot listen on {address}: {(error.strerror or str(error)).lower()}"
            raise InvalidInput(message, reason="BAD_ADDRESS", field="metrics_address") from error
        self.address = f"{address.rpartition(':')[0]}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="web", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
