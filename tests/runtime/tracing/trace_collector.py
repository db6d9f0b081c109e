"""A collector of spans, and rollouts to trace."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from gym_runtime import tracing
from gym_testing.small_system import answer, function_call
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(msgspec.Struct, frozen=True):
    """A span as the collector got it."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    kind: str
    attributes: dict[str, Any]
    events: dict[str, dict[str, Any]]
    failed: bool


def attributes(several: Any) -> dict[str, Any]:
    """Attributes as the wire has them, by name."""
    found: dict[str, Any] = {}
    for one in several:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind) if kind else ""
        found[one.key] = [each.string_value for each in value.values] if kind == "array_value" else value
    return found


class Collector:
    """An OTLP/HTTP collector, and an engine that notes what it is sent, at one address."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.lines: list[Any] = []
        self.engine_headers: list[dict[str, str]] = []
        self.url = ""
        self.refuses = False

    async def export(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest()
        message.ParseFromString(await request.read())
        for resource in message.resource_spans:
            service = attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                assert scope.schema_url == tracing.SCHEMA_URL
                for span in scope.spans:
                    self.spans.append(
                        Span(
                            trace=span.trace_id.hex(),
                            id=span.span_id.hex(),
                            parent=span.parent_span_id.hex(),
                            name=span.name,
                            service=service,
                            kind=type(span).SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                            attributes=attributes(span.attributes),
                            events={event.name: attributes(event.attributes) for event in span.events},
                            failed=span.status.code == 2,
                        )
                    )
        return web.Response(content_type="application/x-protobuf")

    async def logs(self, request: web.Request) -> web.Response:
        message = ExportLogsServiceRequest()
        message.ParseFromString(await request.read())
        for resource in message.resource_logs:
            for scope in resource.scope_logs:
                self.lines += scope.log_records
        return web.Response(content_type="application/x-protobuf")

    async def respond(self, request: web.Request) -> web.Response:
        self.engine_headers.append(dict(request.headers))
        if self.refuses:
            return web.json_response({"error": {"message": "no"}}, status=403)
        body = msgspec.json.decode(await request.read())
        called = body["input"][-1].get("type") == "function_call_output"
        turn = answer("done") if called else answer(function_call("increment_counter", '{"count": 1}'))
        return web.Response(body=bytes(turn.response), content_type="application/json")

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "stub", "object": "model"}]})


@asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    collector = Collector()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/traces", collector.export)
    app.router.add_post("/v1/logs", collector.logs)
    app.router.add_post("/v1/responses", collector.respond)
    app.router.add_get("/v1/models", collector.models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    collector.url = f"http://{host}:{port}"
    try:
        yield collector
    finally:
        await runner.cleanup()
