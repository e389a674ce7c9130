"""A small page for machines that do not speak gRPC: /metrics for Prometheus, /livez and /readyz for probes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.settings import split_address

TEXT = "text/plain; version=0.0.4; charset=utf-8"
SLOW_S = 5.0  # a client that has not sent its request by then is dropped


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
            self._server = ThreadingHTTPServer(split_address(address, "metrics_address"), Handler)
        except OSError as error:
            message = f"cannot listen on {address}: {(error.strerror or str(error)).lower()}"
            raise InvalidInput(message, reason="BAD_ADDRESS", field="metrics_address") from error
        self._server.daemon_threads = True
        self.address = f"{address.rpartition(':')[0]}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="web", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
