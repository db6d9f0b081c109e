"""OpenTelemetry across workers: one trace per rollout, a span per request, W3C context in the headers.

Tracing is off, and then costs one comparison per span, unless the standard environment variables ask for it:
``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``…_TRACES_ENDPOINT``), ``OTEL_TRACES_EXPORTER=console``, with
``OTEL_TRACES_SAMPLER`` and ``OTEL_TRACES_SAMPLER_ARG`` for sampling; ``OTEL_SDK_DISABLED=true`` wins.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from gym_runtime.timing import EXPORT_STOP_S

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer


_tracer: Tracer | None = None
_provider: TracerProvider | None = None
_exporter: SpanExporter | None = None
_NOTHING: AbstractContextManager[None] = nullcontext()


def wanted() -> bool:
    """Whether the environment asks for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return exporter != "none"
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )


def start(service: str) -> None:
    """Set up tracing in this process, if the environment asks for it.

    Call it after any fork: the exporter has a thread, and a fork does not copy threads.
    """
    global _tracer, _provider, _exporter
    if not wanted():
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        _exporter = ConsoleSpanExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        _exporter = OTLPSpanExporter()
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    _provider = TracerProvider(resource=Resource.create({"service.name": name}))
    _provider.add_span_processor(BatchSpanProcessor(_exporter))
    _tracer = _provider.get_tracer("gym_runtime")


def stop() -> None:
    """Export the remaining spans; wait at most `EXPORT_STOP_S` for a collector that does not answer."""
    global _tracer, _provider, _exporter
    if _provider is not None and _exporter is not None:
        # The SDK would retry for longer than a worker may take to stop.
        give_up = threading.Timer(EXPORT_STOP_S, _exporter.shutdown)
        give_up.start()
        _provider.shutdown()
        give_up.cancel()
    _tracer = _provider = _exporter = None


def span(
    name: str, headers: Mapping[str, str] | None = None, **attributes: str | int | float
) -> AbstractContextManager[None]:
    """A span around a block; a child of the context in ``headers``, or else of the current span."""
    return _NOTHING if _tracer is None else _span(_tracer, name, headers, attributes)


def continued(
    name: str, headers: Mapping[str, str] | None, **attributes: str | int | float
) -> AbstractContextManager[None]:
    """A span in the trace that a caller's ``headers`` carry; no span if there are no headers."""
    return span(name, headers, **attributes) if headers else _NOTHING


@contextmanager
def _span(
    tracer: Tracer, name: str, headers: Mapping[str, str] | None, attributes: Mapping[str, str | int | float]
) -> Generator[None]:
    from opentelemetry.propagate import extract

    context = extract(headers) if headers else None
    with tracer.start_as_current_span(name, context=context, attributes=dict(attributes)):
        yield


def headers() -> dict[str, str] | None:
    """The current context as headers; None when tracing is off."""
    if _tracer is None:
        return None
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier


def trace_id() -> str | None:
    """The current trace's id, for logs; None outside a trace."""
    if _tracer is None:
        return None
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
