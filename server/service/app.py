"""The server process: puts identity, limits, log and metrics around the services, and ends gracefully."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service import logs
from tilewise.server.service.identity import local
from tilewise.server.service.identity.identify import Identify
from tilewise.server.service.rpc.answers import Answers
from tilewise.server.service.rpc.apart import Apart, Told, tell_predictions
from tilewise.server.service.rpc.call import Observer
from tilewise.server.service.rpc.health import Health, Reflection
from tilewise.server.service.rpc.lanes import Lanes
from tilewise.server.service.rpc.overseer import Overseer
from tilewise.server.service.rpc.router import Router
from tilewise.server.service.settings import Settings
from tilewise.server.service.tenants import Tenants, opened

log = logging.getLogger(__name__)

MIB = 2**20
LATE_S = 1.0  # beyond the grace: for work to see that nobody waits
CALLS_MAX = 4096  # beyond it gRPC itself refuses; the lanes take far fewer, and turn the others away at once
OPTIONS = [
    ("grpc.max_send_message_length", 64 * MIB),
    ("grpc.per_message_decompression", 0),  # a thousandth of its bytes bring a message; what is sent is what is held
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 256),  # of one connection
    ("grpc.server_handshake_timeout_ms", 10_000),  # a connection that does not get on is closed
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 30_000),
    ("grpc.keepalive_time_ms", 60_000),  # dead connections are found and closed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 300_000),  # one that asks nothing is closed
    ("grpc.max_connection_age_ms", 600_000),  # clients come back and find new replicas
    ("grpc.max_connection_age_grace_ms", 660_000),
]


class Server:
    """A running server. port: where it listens; stop(grace_s) begins to end it and returns an event to wait for."""

    def __init__(self, settings: Settings, local_token: str = "", *, told: bool = False) -> None:
        """local_token: of the process that started this one, which keeps its file; "": this one's own. told: that process says who
        calls, and counts (rpc/apart.py).

        Raises InvalidInput (BAD_ADDRESS, BAD_CERTIFICATE, BAD_TOKENS_FILE, BAD_STORE), Unavailable, NotAvailable."""
        self.settings = settings
        self.tenants = Tenants(opened(settings), settings.poll_s)
        identify: Identify | Told = Told(self.tenants) if told else Identify(settings)
        self.lanes, self.overseer = Lanes(settings), Overseer(settings.first_s, settings.stall_s)
        self.apart = Apart(settings, self.overseer) if settings.apart else None
        observers: list[Observer] = [tell_predictions if told else logs.log_call]
        self.metrics = None
        if settings.metrics_address:
            from tilewise.server.service.metrics import Metrics

            self.metrics = Metrics(self.lanes, self.tenants)
            observers.append(self.metrics.observe)
        if settings.tracing:
            from tilewise.server.service.tracing import spans

            observers.append(spans())
        answers = Answers(settings.cache_mib * MIB)
        self._health = Health()
        open_services: dict[str, object] = {"Health": self._health}
        if settings.reflection:
            open_services["ServerReflection"] = Reflection()
        self.router = Router(
            self.tenants, identify, self.lanes, answers, self.overseer, observers, settings.candidates, open_services,
            self.apart,
        )  # fmt: skip
        self._grpc = grpc.server(
            ThreadPoolExecutor(1, "grpc"), [self.router], maximum_concurrent_rpcs=CALLS_MAX,
            options=[
                *OPTIONS,
                ("grpc.max_receive_message_length", settings.message_mib * MIB),
                ("grpc.so_reuseport", int(settings.workers > 1)),
            ],
        )  # fmt: skip
        self.port = self._listen()
        self._own_token = ""
        if settings.loopback and not settings.tokens and not settings.socket:
            self._own_token = "" if local_token else local.written(self.port)
            identify.local_token = local_token or self._own_token
        self._grpc.start()
        self.ready = True

    def stop(self, grace_s: float | None = None) -> threading.Event:
        """No new calls from now on; those in flight have `grace_s` seconds. The event is set once all have ended."""
        self.ready = False
        self._health.enter_graceful_shutdown()
        ended, done = self._grpc.stop(grace_s), threading.Event()

        def close() -> None:
            ended.wait()
            for part in (self.apart, self.overseer, self.lanes, self.tenants, self.metrics):
                if part is not None:
                    part.close()
            local.forgotten(self.port, self._own_token)
            done.set()

        threading.Thread(target=close, name="closing", daemon=True).start()
        return done

    def _listen(self) -> int:
        address = self.settings.address
        if self.settings.socket:
            return self._listen_on_socket()
        try:
            if self.settings.tls_cert:
                from tilewise.server.service.identity.tls import credentials

                return self._grpc.add_secure_port(address, credentials(self.settings))
            return self._grpc.add_insecure_port(address)
        except RuntimeError as error:
            raise InvalidInput(
                f"cannot listen on {address}: the port is taken, or the address is not one of this machine's",
                reason="BAD_ADDRESS",
                field="address",
            ) from error

    def _listen_on_socket(self) -> int:
        """On a file that its user alone may open. Raises InvalidInput (BAD_ADDRESS)."""
        before = os.umask(0o177)
        try:
            if listened_on(self.settings.socket):  # gRPC would take the name away from it
                raise RuntimeError
            return self._grpc.add_insecure_port(self.settings.address)
        except RuntimeError as error:
            raise InvalidInput(
                f"cannot listen on {self.settings.address}: a server answers there, the folder is not there, or the path is too long",
                reason="BAD_ADDRESS",
                field="address",
            ) from error
        finally:
            os.umask(before)


def listened_on(path: str) -> bool:
    """Whether somebody listens on a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(path)
        except OSError:
            return False
    return True


def start(address: str, *, store: Path | str | None = None, **others: object) -> tuple[Server, int]:
    """Start a server in this process; others: fields of Settings. Returns it and its port."""
    settings = Settings(address=address, store=str(store or ""), **others)  # type: ignore[arg-type]
    server = Server(settings)
    return server, server.port


def end(server: Server) -> None:
    """Stop a server, and with it the process where work goes on that looks at no deadline."""
    grace_s = server.settings.grace_s
    last = time.monotonic() + grace_s + LATE_S
    server.stop(grace_s).wait(grace_s + LATE_S)
    while server.lanes.in_flight():  # gRPC has answered them, but their threads go on
        if time.monotonic() > last:
            log.error("%d calls went on for %g s and end with the process", server.lanes.in_flight(), grace_s + LATE_S)
            os._exit(1)
        time.sleep(0.01)


def stop_signal() -> threading.Event:
    """Set when the process is told to stop."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
