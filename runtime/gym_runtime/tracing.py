"""OpenTelemetry across workers: one trace per rollout, a span per request, W3C context in the headers.

Tracing is off, and then costs one comparison per span, unless the standard environment variables ask for it:
``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``…_TRACES_ENDPOINT``), ``OTEL_TRACES_EXPORTER=console``, with
``OTEL_TRACES_SAMPLER`` and ``OTEL_TRACES_SAMPLER_ARG`` for sampling; ``OTEL_SDK_DISABLED=true`` wins. The
rollouts of a client with ``TRACEPARENT`` in its environment are part of that trace.

Names follow OpenTelemetry's conventions for generative models, ``gen_ai.*``, which are still in development;
what they have no name for is ``gym.*``. No name of a span holds an id.

Source: https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

from gym_runtime.timing import EXPORT_STOP_S

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

Signal = Literal["traces", "metrics", "logs"]
Kind = Literal["internal", "client", "server"]
Attributes = Mapping[str, str | int | float | tuple[str, ...]]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
NAME_CHARS = 64
"""A tool's name in a span's name is what a model wrote; more of it would only make the trace hard to read."""

_tracer: Tracer | None = None
_provider: TracerProvider | None = None
_exporter: SpanExporter | None = None
_NOTHING: AbstractContextManager[None] = nullcontext()


def exports(signal: Signal) -> bool:
    """Whether the environment asks for a signal to be exported."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    if exporter:
        return exporter != "none"
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    )


def foreign_protocol() -> str:
    """What to say of a protocol that the environment asks for and that is not spoken here; empty if it asks
    for none."""
    signals: tuple[Signal, ...] = ("traces", "metrics", "logs")
    for signal in filter(exports, signals):
        names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        name = next((name for name in names if os.environ.get(name)), "")
        if name and os.environ[name] != "http/protobuf":
            return (
                f"{name} is '{os.environ[name]}', but OTLP is sent by HTTP with protobuf: give the "
                "collector's port for HTTP, mostly 4318"
            )
    return ""


def resource(service: str, worker: str = "") -> Resource:
    """What exports: ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win over what is given here."""
    from opentelemetry.sdk.resources import Resource

    instance = {"service.instance.id": worker} if worker else {}
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    return Resource.create({"service.name": name, **instance})


def start(service: str, worker: str = "") -> None:
    """Set up tracing in this process, if the environment asks for it.

    Call it after any fork: the exporter has a thread, and a fork does not copy threads.
    """
    global _tracer, _provider, _exporter
    if not exports("traces"):
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        # Its default is the standard output of the moment at which its module was imported.
        _exporter = ConsoleSpanExporter(out=sys.stdout)
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        _exporter = OTLPSpanExporter()
    _provider = TracerProvider(resource=resource(service, worker))
    _provider.add_span_processor(BatchSpanProcessor(_exporter))
    _tracer = _provider.get_tracer("gym_runtime", schema_url=SCHEMA_URL)


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


def enabled() -> bool:
    """Whether this process is traced, so that what a span says is worth its cost."""
    return _tracer is not None


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: Kind = "internal",
    parent: Mapping[str, str] | None = None,
) -> AbstractContextManager[None]:
    """A span around a block; a child of the context in the headers ``parent``, or else of the current span.

    An exception that leaves the block makes its status ERROR, with the exception's class as ``error.type``.
    """
    return _NOTHING if _tracer is None else _span(_tracer, name, attributes or {}, kind, parent)


def continued(
    name: str,
    headers: Mapping[str, str] | None,
    attributes: Attributes | None = None,
    *,
    kind: Kind = "server",
) -> AbstractContextManager[None]:
    """A span in the trace that a caller's ``headers`` carry; no span if there are no headers."""
    return span(name, attributes, kind=kind, parent=headers) if headers else _NOTHING


@contextmanager
def _span(
    tracer: Tracer, name: str, attributes: Attributes, kind: Kind, parent: Mapping[str, str] | None
) -> Generator[None]:
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    context = extract(parent) if parent else None
    with tracer.start_as_current_span(
        name, context=context, kind=SpanKind[kind.upper()], attributes=dict(attributes)
    ) as current:
        try:
            yield
        except Exception as error:
            current.set_attribute("error.type", type(error).__name__)
            raise


def _current() -> Span | None:
    if _tracer is None:
        return None
    from opentelemetry.trace import get_current_span

    return get_current_span()


def recording() -> bool:
    """Whether there is a current span that will be exported, so that attributes are worth their cost."""
    current = _current()
    return current is not None and current.is_recording()


def note(attributes: Attributes) -> None:
    """Set attributes of the current span."""
    if current := _current():
        current.set_attributes(dict(attributes))


def event(name: str, attributes: Attributes) -> None:
    """Add an event to the current span."""
    if current := _current():
        current.add_event(name, dict(attributes))


def fail(kind: str, message: str) -> None:
    """Make the current span's status ERROR, for what failed without an exception.

    Args:
        kind: the ``error.type``: the name of an error of `gym_runtime.errors`.
    """
    if current := _current():
        from opentelemetry.trace import StatusCode

        current.set_attribute("error.type", kind)
        current.set_status(StatusCode.ERROR, message)


def headers() -> dict[str, str] | None:
    """The current context as headers; None when tracing is off."""
    if _tracer is None:
        return None
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier


def inherited() -> dict[str, str] | None:
    """The context that this process was started in, as headers, if it is to be traced; else None.

    Source: https://opentelemetry.io/docs/specs/otel/context/env-carriers/
    """
    names = ("TRACEPARENT", "TRACESTATE")
    if not os.environ.get(names[0]) or not exports("traces"):
        return None
    return {name.lower(): os.environ[name] for name in names if os.environ.get(name)}


def trace_id() -> str | None:
    """The current trace's id, for logs; None outside a trace."""
    current = _current()
    context = current and current.get_span_context()
    return format(context.trace_id, "032x") if context and context.is_valid else None
