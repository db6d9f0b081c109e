"""Tracing across real processes into a real collector: one trace a rollout, a span a hop."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
import structlog
from aiohttp import web
from gym_runtime import connect, logs, tracing
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.testing.small_system import answer, function_call
from gym_runtime.workers.adapter import ModelSettings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

NAME = "example_session_state_mgmt"
ROW = {"responses_create_params": {"input": "count"}, "initial_count": 3, "expected_count": 4}


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


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Collector]:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


async def make(collector: Collector, count: int) -> list[RolloutRecord]:
    """Rollouts by worker processes of their own, which have ended when this returns."""
    model = ModelSettings(provider="openai", name="stub", urls=(f"{collector.url}/v1",), api="responses")
    async with connect(model=model, environments=[NAME]) as gym:
        rows = [{**ROW, "number": number} for number in range(count)]
        return [record async for record in gym.rollouts(rows, environment=NAME)]


def tree(spans: list[Span], parent: str = "") -> list[Any]:
    """Names of spans with those of their children, sorted."""
    return sorted(([span.name, *tree(spans, span.id)] for span in spans if span.parent == parent), key=repr)


EXPECTED = [
    f"invoke_agent {NAME}",
    ["execute_tool increment_counter", [f"resource {NAME}"]],
    ["turn", ["chat stub"]],
    ["turn", ["chat stub"]],
    [f"verify {NAME}", [f"resource {NAME}"]],
]

SPANS = 9


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_rollout_is_one_trace_across_all_processes(collector: Collector) -> None:
    records = await make(collector, 1)
    assert [record.outcome for record in records] == [Completed()]
    spans = collector.spans
    assert tree(spans) == [EXPECTED]
    assert len({span.trace for span in spans}) == 1
    assert {(span.name.split()[0], span.service, span.kind) for span in spans} == {
        ("invoke_agent", "gym-runtime-agent", "INTERNAL"),
        ("turn", "gym-runtime-agent", "INTERNAL"),
        ("execute_tool", "gym-runtime-agent", "INTERNAL"),
        ("verify", "gym-runtime-agent", "INTERNAL"),
        ("chat", "gym-runtime-model", "CLIENT"),
        ("resource", "gym-runtime-resource", "SERVER"),
    }
    assert not any(span.failed for span in spans)
    run = records[0].run
    assert not [span.name for span in spans if run in span.name]


@pytest.mark.anyio
@pytest.mark.slow
async def test_spans_say_what_the_conventions_ask_for(collector: Collector) -> None:
    [record] = await make(collector, 1)
    named = {span.name.split()[0]: span for span in collector.spans}
    about = named["invoke_agent"].attributes
    assert about.pop("gym.worker") == record.worker
    assert about == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": NAME,
        "gen_ai.conversation.id": record.rollout_id,
        "gen_ai.usage.input_tokens": record.numbers["input_tokens"],
        "gen_ai.usage.output_tokens": record.numbers["output_tokens"],
        "gym.agent": "tool_loop",
        "gym.environment": NAME,
        "gym.model": "policy",
        "gym.run": record.run,
        "gym.task_index": 0,
        "gym.rollout_index": 0,
        "gym.attempt": 1,
        "gym.outcome": "completed",
        "gym.reward": record.reward,
        "gym.turns": 2,
        "gym.tool_calls": 1,
    }
    chat = named["chat"].attributes
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["gen_ai.request.model"] == "stub"
    assert chat["gen_ai.response.finish_reasons"] == ["stop"]
    assert {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gym.worker"} <= set(chat)
    tool = named["execute_tool"].attributes
    assert tool["gen_ai.operation.name"] == "execute_tool"
    assert tool["gen_ai.tool.name"] == "increment_counter"
    assert tool["gen_ai.tool.call.id"]
    assert (
        named["verify"].events["gen_ai.evaluation.result"]["gen_ai.evaluation.score.value"] == record.reward
    )
    assert {span.attributes.get("gym.operation") for span in collector.spans} == {None, "tool", "verify"}


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_failed_rollout_is_an_error_and_its_trace_the_callers(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, parent = "ab" * 16, "cd" * 8
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-{parent}-01")
    collector.refuses = True
    [record] = await make(collector, 1)
    assert isinstance(record.outcome, Failed)
    assert {span.trace for span in collector.spans} == {trace}
    root = next(span for span in collector.spans if span.parent == parent)
    assert (root.name, root.failed) == (f"invoke_agent {NAME}", True)
    assert root.attributes["gym.outcome"] == "failed"
    assert root.attributes["gym.stage"] == "model"
    assert root.attributes["error.type"] == "ModelRefused"
    chat = next(span for span in collector.spans if span.name == "chat stub")
    assert (chat.failed, chat.attributes["error.type"]) == (True, "ModelRefused")


@pytest.mark.anyio
@pytest.mark.slow
async def test_rollouts_are_traces_of_their_own(collector: Collector) -> None:
    records = await make(collector, 20)
    by_trace: dict[str, list[Span]] = {}
    for span in collector.spans:
        by_trace.setdefault(span.trace, []).append(span)
    assert len(by_trace) == 20
    assert all(tree(spans) == [EXPECTED] for spans in by_trace.values())
    roots = {span.attributes["gen_ai.conversation.id"] for span in collector.spans if not span.parent}
    assert roots == {record.rollout_id for record in records}


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_engine_gets_the_context_of_the_models_span(collector: Collector) -> None:
    await make(collector, 1)
    model_spans = {(span.trace, span.id) for span in collector.spans if span.name == "chat stub"}
    sent = [headers["traceparent"].split("-") for headers in collector.engine_headers]
    assert {(trace, parent) for _, trace, parent, _ in sent} == model_spans
    assert all(int(flags, 16) & 1 for *_, flags in sent)


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "argument", "kept"),
    [("always_off", "", range(1)), ("parentbased_traceidratio", "0.5", range(2, 49))],
)
async def test_the_standard_variables_sample_whole_traces(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, kept: range
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    await make(collector, 50)
    traces = {span.trace for span in collector.spans}
    assert len(traces) in kept
    assert len(collector.spans) == len(traces) * SPANS
    sampled = [int(headers["traceparent"][-2:], 16) & 1 for headers in collector.engine_headers]
    assert sum(sampled) == 2 * len(traces)


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.soak
async def test_a_collector_that_is_not_there_costs_spans_and_nothing_else(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with anyio.fail_after(15):
        records = await make(collector, 3)
    assert [record.outcome for record in records] == [Completed()] * 3


# -- in one process -----------------------------------------------------------------------------------


@pytest.fixture
def _off() -> Iterator[None]:
    yield
    tracing.stop()


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, False),
    ],
)
def test_it_is_on_when_the_standard_variables_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: bool
) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tracing.exports("traces") is wanted


@pytest.mark.slow
def test_off_it_imports_nothing_and_says_nothing() -> None:
    program = """
import sys
from gym_runtime import tracing
import gym_runtime.system.worker_process, gym_runtime.client
tracing.start("test")
with tracing.span("a", {"x": 1}, parent={"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}):
    tracing.note({"x": 2})
    assert tracing.headers() is None and tracing.trace_id() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=20)


@pytest.mark.usefixtures("_off")
def test_headers_carry_the_current_span_to_its_children(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    tracing.start("test")
    assert tracing.trace_id() is None
    with tracing.span("parent"):
        headers = tracing.headers()
        trace = tracing.trace_id()
    assert headers is not None
    assert trace is not None
    assert headers["traceparent"].split("-")[1] == trace
    with tracing.span("child", parent=headers):
        assert tracing.trace_id() == trace
    with tracing.span("stranger"):
        assert tracing.trace_id() != trace
    with tracing.continued("nobody's", {}):
        assert tracing.trace_id() is None
    tracing.stop()
    assert capfd.readouterr().out.count('"trace_id"') >= 3


@pytest.mark.anyio
async def test_logs_are_exported_with_their_trace(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    logs.start("agent-1")
    logs.export("test", "agent-1")
    tracing.start("test")
    try:
        with tracing.span("parent"):
            trace = tracing.trace_id()
            logs.logger().warning("an attempt failed", error="503", tries=2)
        logging.getLogger("aiohttp").error("a library's %s", "line")
        await anyio.to_thread.run_sync(logs.stop_export)
    finally:
        logs.stop_export()
        tracing.stop()
        structlog.reset_defaults()
    ours, theirs = collector.lines
    assert ours.body.string_value == "an attempt failed"
    assert ours.trace_id.hex() == trace
    assert attributes(ours.attributes) == {"worker": "agent-1", "error": "503", "tries": 2}
    assert ours.severity_text == "warning"
    assert theirs.body.string_value == "a library's line"
    assert capfd.readouterr().err.count("an attempt failed") == 1
