"""Traces of rollouts across all processes, as a collector gets them."""

from __future__ import annotations

from typing import Any, NamedTuple

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_runtime.workers.adapter import ModelSettings
from runtime.tracing.trace_collector import Collector, Span, collecting

NAME = "example_session_state_mgmt"


ROW = {"responses_create_params": {"input": "count"}, "initial_count": 3, "expected_count": 4}


async def make(collector: Collector, count: int) -> list[RolloutRecord]:
    """Rollouts by worker their own processes, which have ended when this returns."""
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


SPANS, TRACED = 9, 20


class Traced(NamedTuple):
    """Rollouts, the spans of each, and the headers that the engine got."""

    records: list[RolloutRecord]
    spans: dict[str, list[Span]]
    engine_headers: list[dict[str, str]]


@pytest.fixture(scope="module")
async def traced() -> Traced:
    async with collecting() as collector:
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            records = await make(collector, TRACED)
        roots = [span for span in collector.spans if not span.parent]
        spans = {
            root.attributes["gen_ai.conversation.id"]: [
                span for span in collector.spans if span.trace == root.trace
            ]
            for root in roots
        }
        assert len(roots) == len(spans) == TRACED
        return Traced(records, spans, collector.engine_headers)


@pytest.mark.anyio
@pytest.mark.slow
async def test_each_rollout_is_one_trace_across_all_processes(traced: Traced) -> None:
    assert [record.outcome for record in traced.records] == [Completed()] * TRACED
    assert traced.spans.keys() == {record.rollout_id for record in traced.records}
    assert all(tree(spans) == [EXPECTED] for spans in traced.spans.values())
    assert len({spans[0].trace for spans in traced.spans.values()}) == TRACED
    spans = [span for spans in traced.spans.values() for span in spans]
    assert len(spans) == TRACED * SPANS
    assert {(span.name.split()[0], span.service, span.kind) for span in spans} == {
        ("invoke_agent", "gym-runtime-agent", "INTERNAL"),
        ("turn", "gym-runtime-agent", "INTERNAL"),
        ("execute_tool", "gym-runtime-agent", "INTERNAL"),
        ("verify", "gym-runtime-agent", "INTERNAL"),
        ("chat", "gym-runtime-model", "CLIENT"),
        ("resource", "gym-runtime-resource", "SERVER"),
    }
    assert not any(span.failed for span in spans)
    run = traced.records[0].run
    assert not [span.name for span in spans if run in span.name]


@pytest.mark.anyio
@pytest.mark.slow
async def test_spans_say_what_the_conventions_ask_for(traced: Traced) -> None:
    record = next(record for record in traced.records if record.task_index == 0)
    spans = traced.spans[record.rollout_id]
    named = {span.name.split()[0]: span for span in spans}
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
    assert {span.attributes.get("gym.operation") for span in spans} == {None, "tool", "verify"}


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
async def test_the_engine_gets_the_context_of_the_models_span(traced: Traced) -> None:
    spans = [span for spans in traced.spans.values() for span in spans]
    model_spans = {(span.trace, span.id) for span in spans if span.name == "chat stub"}
    sent = [headers["traceparent"].split("-") for headers in traced.engine_headers]
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
