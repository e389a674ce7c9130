"""`tilewise serve`: one process, or several behind one port."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import tilewise
from tilewise.hwdb.database import Database
from tilewise.server.service import logs
from tilewise.server.service.app import Server, end, stop_signal
from tilewise.server.service.settings import Settings
from tilewise.server.service.workers import supervise

log = logging.getLogger("tilewise.server")


def serve(settings: Settings) -> Iterator[str]:
    """Serve until SIGTERM or SIGINT; yields the address once it answers, then finishes what is in flight."""
    logs.set_up(settings.log_format)
    begun = time.monotonic()
    log.info("starting", extra={"line": {"version": tilewise.__version__, "workers": settings.workers}})
    for address in supervise(settings) if settings.workers > 1 else alone(settings):
        seconds = round(time.monotonic() - begun, 1)
        log.info(
            "serving", extra={"line": {"address": address, "database": Database.packaged().version, "after_s": seconds}}
        )
        yield address
    log.info("stopped", extra={"line": {"after_s": round(time.monotonic() - begun, 1)}})


def alone(settings: Settings) -> Iterator[str]:
    """In this very process."""
    stop = stop_signal()
    server = Server(settings)
    if server.apart is not None:
        server.apart.start()
    web = None
    if server.metrics is not None:
        from prometheus_client import generate_latest

        from tilewise.server.service.web import Web

        metrics = server.metrics

        def page() -> bytes:
            metrics.sample()
            return generate_latest(metrics.registry)

        web = Web(settings.metrics_address, page, lambda: server.ready)
    yield settings.address if settings.socket else f"{settings.address.rpartition(':')[0]}:{server.port}"
    stop.wait()
    log.info("stopping", extra={"line": {"grace_s": settings.grace_s}})
    end(server)
    if web is not None:
        web.close()
