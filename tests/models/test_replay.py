"""The `replay` adapter: what it finds, in what it finds it, and what it says where it finds nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_models.replay import Adapter
from gym_runtime.errors import ModelRefused, UsageError
from gym_runtime.messages.calls import ModelAnswer
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, decoded, model_call, output

pytestmark = pytest.mark.anyio

USER = {"role": "user", "content": "What is the weather?"}
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Ulm"}',
    "id": "f1",
}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
THOUGHT = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hm"}]}


def said(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "status": "completed",
        "content": [part],
        **more,
    }


def tokens(*ids: int) -> dict[str, Any]:
    return {
        "prompt_token_ids": [1, 2],
        "generation_token_ids": list(ids),
        "generation_log_probs": [-0.5] * len(ids),
        "routed_experts": "nrlre1:x",
    }


def row(
    *items: dict[str, Any], task: int = 0, rollout: int = 0, said_by: str = "m", **more: Any
) -> dict[str, Any]:
    """A result row with these output items."""
    usage = {"input_tokens": 30, "output_tokens": 3, "total_tokens": 33}
    response = {"id": f"resp_{said_by}", "model": said_by, "output": list(items), "usage": usage, **more}
    params = {"input": [USER], "temperature": 0.7}
    return {
        "responses_create_params": params,
        "response": response,
        "reward": 1.0,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
    }


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """``play(rows, call)``: the adapter's answer to a call."""
    path = tmp_path / "rollouts.jsonl"

    async def play(rows: list[dict[str, Any]], call: Any, rollout: str = "run.0.0") -> ModelAnswer:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        async with Adapter(ModelSettings.parse(f"replay/{path}")) as adapter:
            return await adapter.respond(call, context(rollout=rollout))

    return play


async def test_each_turn_of_a_rollout(play: Any) -> None:
    recorded = row(THOUGHT, CALL, RESULT, said("It rains."), status="incomplete")
    first = await play([recorded], model_call(USER))
    assert output(first) == [THOUGHT, CALL]
    assert decoded(first).status == "completed"
    assert decoded(first).usage is None
    last = await play([recorded], model_call(USER, THOUGHT, CALL, RESULT))
    assert output(last) == [said("It rains.")]
    assert decoded(last).status == "incomplete"
    assert decoded(last).usage is not None  # so the turns' usage adds up to the row's


@pytest.mark.parametrize(
    "items",
    [
        [
            {"role": "user", "content": [{"type": "input_text", "text": USER["content"]}]},
            THOUGHT,
            CALL,
            RESULT,
        ],
        [
            USER,
            {**CALL, "id": None, "arguments": '{"city":"Ulm"}'},
            {**RESULT, "status": "completed", "id": "o"},
        ],
        [USER, THOUGHT, {**CALL, **tokens(7)}, RESULT],
    ],
)
async def test_the_same_conversation_in_other_bytes(play: Any, items: list[dict[str, Any]]) -> None:
    answer = await play([row(THOUGHT, CALL, RESULT, said("It rains."))], model_call(*items))
    assert output(answer) == [said("It rains.")]


async def test_a_call_ends_where_its_tokens_stand(play: Any) -> None:
    """Two answers in a row, the first of them thinking only."""
    recorded = row({**THOUGHT, **tokens(5)}, said("Rain.", **tokens(6, 7)))
    first = await play([recorded], model_call(USER, return_tokens=True))
    assert output(first) == [THOUGHT]
    assert first.tokens is not None
    assert (first.tokens.prompt_ids, first.tokens.generation_ids) == (b"\1\0\0\0\2\0\0\0", b"\5\0\0\0")
    second = await play([recorded], model_call(USER, THOUGHT))
    assert output(second) == [said("Rain.")]
    assert second.tokens is None  # nobody asked for them


@pytest.mark.parametrize("asked", ["run.7.1", "run.7.4"])
async def test_repeats_of_a_task_get_one_recorded_rollout_each(play: Any, asked: str) -> None:
    rows = [row(said(f"{task}.{index}"), task=task, rollout=index) for task in (3, 7) for index in (2, 0, 1)]
    answer = await play(rows, model_call(USER), rollout=asked)
    assert output(answer) == [said("7.1")]


async def test_a_task_with_another_number_gets_what_began_in_the_same_way(play: Any) -> None:
    rows = [row(said("a"), task=3), row(said("b"), task=3, rollout=1)]
    answer = await play(rows, model_call(USER), rollout="run.0.1")
    assert output(answer) == [said("b")]


async def test_instructions_belong_to_the_conversation(play: Any) -> None:
    recorded = row(said("yes"))
    recorded["responses_create_params"]["instructions"] = "Be brief."
    assert output(await play([recorded], model_call(USER, instructions="Be brief."))) == [said("yes")]
    with pytest.raises(ModelRefused, match=r"departs at its element 1 .*Be brief.*Be long"):
        await play([recorded], model_call(USER, instructions="Be long."))


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([{"role": "user", "content": "Hello"}], r"element 1 from rollout 0 of task 0.*weather\?.*Hello"),
        ([USER, CALL, {**RESULT, "output": "sun"}], r"element 3 .*\"rain\".*\"sun\""),
        ([USER, CALL], r"element 3 .*\"rain\".*where this one has its end"),
        ([USER, CALL, RESULT, said("It rains."), USER], r"element 5 .*which has its end where .*weather"),
    ],
)
async def test_another_conversation_is_refused_with_the_first_difference(
    play: Any, items: list[dict[str, Any]], complaint: str
) -> None:
    with pytest.raises(ModelRefused, match=complaint):
        await play([row(CALL, RESULT, said("It rains."))], model_call(*items))


async def test_an_episodes_observations_are_not_the_models(play: Any) -> None:
    observed = {"type": "message", "role": "user", "content": "Higher."}
    answer = await play([row(said("5"), observed, said("6"))], model_call(USER, said("5"), observed))
    assert output(answer) == [said("6")]


async def test_rows_that_failed_before_an_answer_are_passed_over(play: Any) -> None:
    failed = {"responses_create_params": {"input": "x"}, "_ng_task_index": 0}
    assert output(await play([failed, row(said("a"))], model_call(USER))) == [said("a")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no answer"),
        (b'{"responses_create_params": {"input": "x"}}\n', "holds no answer"),
        (b"{}\n", r":1: neither .* 'responses_create_params'"),
        (b"[1]\n", ":1: neither"),
        (b'{"responses_create_params": {"input": 1}, "response": {}}\n', ":1: neither"),
    ],
)
async def test_a_file_of_something_else(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        await Adapter(ModelSettings.parse(f"replay/{path}")).__aenter__()


async def test_a_line_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    whole = json.dumps(row(said("a")))
    path.write_text(f"{whole}\n{whole[:50]}")
    async with Adapter(ModelSettings.parse(f"replay/{path}")) as adapter:
        assert output(await adapter.respond(model_call(USER), context())) == [said("a")]


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [("gpt", {}, "PATH.jsonl"), ("a.jsonl", {"speed": 2}, "no 'speed'")],
)
def test_settings(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Adapter(ModelSettings.parse(f"replay/{name}", options=options))


async def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        await Adapter(ModelSettings.parse(f"replay/{tmp_path}/no.jsonl")).__aenter__()
