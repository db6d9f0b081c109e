"""Tracing in one process: on, off, the context in headers, logs with their trace."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
import structlog
from gym_runtime import logs, tracing
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import launch
from runtime.tracing.trace_collector import Collector, attributes


@pytest.fixture
def _off() -> Iterator[None]:
    yield
    tracing.stop()


def set_variables(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Have these variables of OpenTelemetry and no others."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


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
    set_variables(monkeypatch, variables)
    assert tracing.exports("traces") is wanted


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""),  # nothing is exported
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ""),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', but OTLP is sent by HTTP with protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL is 'http/json'",
        ),
    ],
)
def test_another_protocol_is_told_once_for_a_system(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variables: dict[str, str], told: str
) -> None:
    set_variables(monkeypatch, variables)
    system = launch(SystemSpec(pools=(), nats=("nats://127.0.0.1:9",)))
    system.kill()
    said = capfd.readouterr().err
    assert said.count("port for HTTP, mostly 4318") == bool(told)
    assert told in said


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
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=50)


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
        # Exported, its failures would cause exports without end.
        logging.getLogger("opentelemetry.exporter.otlp").error("no collector")
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
    assert attributes(theirs.attributes)["logger"] == "aiohttp"
    said = capfd.readouterr().err
    assert said.count("an attempt failed") == said.count("no collector") == 1
