"""OpenTelemetry spans of calls, as an extra: pip install 'tilewise[otel]'. The OTEL_* variables say where they go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tilewise.hwdb.errors import NotAvailable
from tilewise.server.service.rpc.call import Call, Observer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


def spans(provider: TracerProvider | None = None) -> Observer:
    """An Observer that makes a span of each call, a child of the span that the caller's `traceparent` names.

    provider: where spans go; unset: to the OTLP endpoint that the environment names.
    Raises NotAvailable (EXTRA_MISSING) without OpenTelemetry.
    """
    try:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        tracer = (provider or exporting()).get_tracer("tilewise")
    except ImportError as error:
        message = f"tracing needs {error.name}: pip install 'tilewise[otel]'"
        raise NotAvailable(message, reason="EXTRA_MISSING") from error
    propagator = TraceContextTextMapPropagator()

    def observe(call: Call) -> None:
        carrier = {key: value for key, value in call.context.invocation_metadata() if isinstance(value, str)}
        ended = time.time_ns()
        span = tracer.start_span(
            call.method.path.removeprefix("/"), propagator.extract(carrier), SpanKind.SERVER,
            start_time=ended - int(1e9 * call.seconds),
            attributes={
                "rpc.system": "grpc",
                "rpc.service": call.method.path.split("/")[1],
                "rpc.method": call.method.name,
                "rpc.grpc.status_code": call.code,
                "tilewise.request_id": call.request_id,
                "tilewise.caller": call.caller.name if call.caller else "",
                "tilewise.waited_s": call.waited_s,
            },
        )  # fmt: skip
        if call.code != "OK":
            span.set_status(Status(StatusCode.ERROR, call.reason))
        span.end(ended)

    return observe


def exporting() -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "tilewise"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
