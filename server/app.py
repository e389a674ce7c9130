"""The server process: the services over gRPC, with limits and a graceful end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.server.service import services
from tilewise.server.status import to_status
from tilewise.v1 import advisor_service_pb2_grpc, calibration_service_pb2_grpc, hardware_service_pb2_grpc

log = logging.getLogger(__name__)

THREADS = (
    4  # numpy handlers of a millisecond hold the GIL: more threads add nothing (measured, 1.6-2.0 k calls a second)
)
CONCURRENT = 64  # beyond it callers get RESOURCE_EXHAUSTED at once instead of a place in an endless queue
GRACE_S = 10.0  # for what is in flight when the process is told to stop
OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),  # a batch of 10,000 requests that share one short config
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 30_000),
    ("grpc.so_reuseport", 0),
]
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ADD: dict[str, Callable[[Any, grpc.Server], None]] = {
    "HardwareService": hardware_service_pb2_grpc.add_HardwareServiceServicer_to_server,
    "AdvisorService": advisor_service_pb2_grpc.add_AdvisorServiceServicer_to_server,
    "CalibrationService": calibration_service_pb2_grpc.add_CalibrationServiceServicer_to_server,
}


class Adapter:
    """A service as gRPC calls it: its methods take a context too, and errors become statuses with details."""

    def __init__(self, service: object) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        method = getattr(self._service, name)

        def handler(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return method(request)
            except TilewiseError as error:
                status = to_status(error)
            except Exception:
                log.exception("%s failed", name)
                status = Status(code=code_pb2.INTERNAL, message=f"{name} failed; the server's log has the cause")
            context.abort_with_status(rpc_status.to_status(status))

        return handler


def start(address: str, *, insecure: bool = False, store: Path | None = None) -> tuple[grpc.Server, int]:
    """Start serving at "host:port" and return the server and its port (port 0: any free one).

    Raises InvalidInput where the address is not on the loopback and `insecure` does not allow it, or is taken.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInput(f"address {address!r} must be HOST:PORT", reason="BAD_ADDRESS", field="address")
    if host not in LOOPBACK and not insecure:
        raise InvalidInput(
            f"{address} can be reached from other machines and would be served without TLS; "
            f"serve on 127.0.0.1, or allow it with --insecure",
            reason="INSECURE_ADDRESS",
            field="address",
        )
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rpc")
    server = grpc.server(pool, maximum_concurrent_rpcs=CONCURRENT, options=OPTIONS)
    for name, service in services(store).items():
        ADD[name](Adapter(service), server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise InvalidInput(
            f"cannot listen on {address}: the port is taken, or the address is not one of this machine's",
            reason="BAD_ADDRESS",
            field="address",
        ) from error
    server.start()
    return server, bound


def serve(address: str, *, insecure: bool = False, store: Path | None = None) -> Iterator[str]:
    """Serve until SIGTERM or SIGINT; yields the address once it answers, then finishes what is in flight."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server, port = start(address, insecure=insecure, store=store)
    yield f"{address.rpartition(':')[0]}:{port}"
    stop.wait()
    server.stop(GRACE_S).wait()
