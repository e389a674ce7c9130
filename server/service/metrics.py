"""Prometheus metrics of calls, predictions and the store."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tilewise.hwdb.errors import NotAvailable
from tilewise.server.service.identity.caller import SHARED
from tilewise.server.service.rpc.call import Call
from tilewise.server.service.rpc.lanes import Lanes
from tilewise.server.service.tenants import Tenants

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120)
SAMPLE_S = 1.0


class Metrics:
    """With PROMETHEUS_MULTIPROC_DIR set, values go to files there, and the parent of the workers shows their sums.

    Raises NotAvailable (EXTRA_MISSING) without prometheus-client.
    """

    def __init__(self, lanes: Lanes, tenants: Tenants) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
        except ImportError as error:
            message = "metrics need prometheus-client: pip install 'tilewise[service]'"
            raise NotAvailable(message, reason="EXTRA_MISSING") from error
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = CollectorRegistry()
        own, self._lanes, self._tenants, self._version = self.registry, lanes, tenants, ""

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(name, about, labels, registry=own)

        def gauge(name: str, about: str, mode: str, *labels: str) -> Gauge:
            return Gauge(name, about, labels, registry=own, multiprocess_mode=mode)  # type: ignore[arg-type]

        self._seconds = Histogram(
            "tilewise_rpc_duration_seconds", "Calls by duration, waiting included.", ("method", "code"),
            registry=own, buckets=BUCKETS,
        )  # fmt: skip
        self._refused = counter("tilewise_rpc_refused_total", "Calls that failed, by reason.", "method", "reason")
        self._predictions = counter("tilewise_predictions_total", "Predictions answered.", "gpu", "trust")
        self._remembered = counter("tilewise_answers_remembered_total", "Predictions answered from memory.")
        self._in_flight = gauge("tilewise_rpc_in_flight", "Calls that wait or run.", "livesum")
        self._revision = gauge("tilewise_store_revision", "Changes of the store that were seen.", "livemin")
        self._store_up = gauge("tilewise_store_up", "1 where the store's database answered last time.", "livemin")
        self._database = gauge("tilewise_database_version", "1 for the database that answers.", "livemax", "version")
        self._stop = threading.Event()
        threading.Thread(target=self._sampling, name="metrics", daemon=True).start()

    def observe(self, call: Call) -> None:
        """An Observer."""
        self._seconds.labels(call.method.title, call.code).observe(call.seconds)
        if call.reason:
            self._refused.labels(call.method.title, call.reason).inc()
        for (gpu, trust), count in call.predictions.items():
            self._predictions.labels(gpu, trust).inc(count)
        if call.cached:
            self._remembered.inc()

    def close(self) -> None:
        self._stop.set()

    def sample(self) -> None:
        """Set the gauges to what is so now."""
        self._in_flight.set(self._lanes.in_flight())
        self._revision.set(self._tenants.revision)
        self._store_up.set(self._tenants.reachable)
        version = self._tenants.database(SHARED).version
        if version != self._version:
            if self._version:
                self._database.labels(self._version).set(0)
            self._version = version
        self._database.labels(version).set(1)

    def _sampling(self) -> None:
        self.sample()
        while not self._stop.wait(SAMPLE_S):
            self.sample()
