"""`tilewise serve`: one process, or several behind one port."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.server.service import logs
from tilewise.server.service.app import Server, end, stop_signal
from tilewise.server.service.settings import Settings
from tilewise.server.service.workers import supervise


def serve(settings: Settings) -> Iterator[str]:
    """Serve until SIGTERM or SIGINT; yields the address once it answers, then finishes what is in flight."""
    logs.set_up(settings.log_format)
    if settings.workers > 1:
        yield from supervise(settings)
        return
    stop = stop_signal()
    server = Server(settings)
    web = None
    if server.metrics is not None:
        from prometheus_client import generate_latest

        from tilewise.server.service.web import Web

        metrics = server.metrics

        def page() -> bytes:
            metrics.sample()
            return generate_latest(metrics.registry)

        web = Web(settings.metrics_address, page, lambda: server.ready)
    yield f"{settings.address.rpartition(':')[0]}:{server.port}"
    stop.wait()
    end(server)
    if web is not None:
        web.close()
