"""What the gateway captures of a rollout's calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faces.gateway.gateway_calls import ALL, ANTHROPIC, CHAT, RESPONSES
from faces.gateway.running_gateway import standing
from gym_faces.gateway.capture import Captures
from gym_faces.recordings.calls_file import CallsFile
from gym_models.replay import Adapter as Replay
from gym_models.scripted import Adapter as Scripted
from gym_runtime import clock
from gym_runtime.errors import ModelRefused
from gym_runtime.messages.calls import ModelAnswer, Prefix, Tokens
from gym_runtime.messages.responses import decode_response
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.small_system import Engine, answer, function_call
from models.model_calls import context, model_call, output

pytestmark = pytest.mark.anyio


async def test_a_rollouts_calls_can_be_read_and_forgotten() -> None:
    scripted = Scripted(ModelSettings.parse("scripted/echo"))
    began_s = clock.now()
    async with standing(scripted, return_tokens=True) as stand:
        for path, body in ALL:
            await stand.post(f"{stand.at('r.0.1')}{path}", body)
        await stand.post(f"{stand.at('other')}/v1/responses", RESPONSES)
        status, found = await stand.get(f"{stand.at('r.0.1')}/calls")
        assert status == 200
        assert found["rollout_id"] == "r.0.1"
        assert [one["api"] for one in found["calls"]] == ["chat", "responses", "messages"]
        for one in found["calls"]:
            assert one["output_items"][0]["content"][0]["text"] == "hi"
            assert one["token_item_index"] == 0
            assert len(one["generation_token_ids"]) == len(one["generation_log_probs"]) > 0
            assert one["prompt_token_ids"]
            assert one["responses_create_params"]["input"][0]["content"] == "hi"
            assert (one["schema_version"], one["model"], one["error"]) == (1, "echo", None)
            assert began_s - 1 < one["created_at"] < clock.now() + 1  # the time of day
        assert len({one["model_call_id"] for one in found["calls"]}) == 3
        assert await stand.get(f"{stand.at('r.0.1')}/calls", "DELETE") == (200, {"forgotten": 3})
        status, gone = await stand.get(f"{stand.at('r.0.1')}/calls")
        assert (status, "no call of rollout 'r.0.1' is known" in gone["error"]["message"]) == (404, True)
        assert stand.captures.calls("other")


async def test_an_error_is_captured_too() -> None:
    async with standing(ModelRefused("no")) as stand:
        await stand.post(f"{stand.at('r')}/v1/responses", RESPONSES)
        (line,) = stand.captures.calls("r") or ()
    assert json.loads(line)["error"]["message"] == "no"


async def test_what_was_captured_in_a_file_can_be_replayed(tmp_path: Path) -> None:
    file = CallsFile(tmp_path / "calls.jsonl")
    async with standing(answer("yes"), captures=Captures(file=file)) as stand:
        await stand.post(f"{stand.at('run.0.0')}/v1/chat/completions", CHAT)
        await stand.post("/v1/chat/completions", CHAT)  # nobody's
    file.close()
    async with Replay(ModelSettings.parse(f"replay/{tmp_path}/calls.jsonl")) as replay:
        again = await replay.respond(model_call({"role": "user", "content": "hi"}), context())
    assert output(again)[0]["content"][0]["text"] == "yes"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk here is full on purpose")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_written_is_not_given(stream: bool) -> None:
    file = CallsFile(Path("/dev/full"))
    async with standing(answer("x"), captures=Captures(file=file)) as stand:
        body = {**RESPONSES, "stream": stream}
        status, said, _ = await stand.post(f"{stand.at('r')}/v1/responses", body)
    assert (status, "disk full at /dev/full" in said["error"]["message"]) == (500, True)
    file.close()


async def test_a_rollouts_next_call_shows_the_model_its_own_history() -> None:
    """A client writes it anew, without ids and with arguments in other bytes."""
    called = function_call("f", '{"a":  1}', "c1")
    first, second = answer("Let me see.", called), answer("done")
    tokens = Tokens(prompt_ids=b"\1\0\0\0", generation_ids=b"\2\0\0\0", log_probs=b"\0\0\0\0")
    engine = Engine(ModelAnswer(response=first.response, tokens=tokens), second)
    again = [
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]},
    ]  # fmt: skip
    async with standing(engine, return_tokens=True) as stand:
        for messages in (ANTHROPIC["messages"], [*ANTHROPIC["messages"], *again]):
            await stand.post(f"{stand.at('r')}/v1/messages", {**ANTHROPIC, "messages": messages})
            await stand.post(f"{stand.at('other')}/v1/messages", {**ANTHROPIC, "messages": messages})
    calls = [call for call, asked in engine.calls.items if asked.rollout == "r"]
    assert [call.prefix for call in calls] == [None, Prefix(ids=b"\1\0\0\0\2\0\0\0", items=3, completion=1)]
    assert [bytes(raw) for raw in calls[1].input[1:3]] == [
        bytes(raw) for raw in decode_response(first.response).output
    ]


async def test_memory_is_bounded_by_forgetting_whole_rollouts() -> None:
    async with standing(answer("x")) as stand:
        await stand.post(f"{stand.at('a')}/v1/responses", RESPONSES)
        size = stand.captures.size_bytes
    async with standing(answer("x"), captures=Captures(max_bytes=int(3.5 * size))) as stand:
        for rollout in ("a", "b", "a", "c"):
            await stand.post(f"{stand.at(rollout)}/v1/responses", RESPONSES)
        assert stand.captures.calls("b") is None  # silent for longest
        assert len(stand.captures.calls("a") or ()) == 2
        assert len(stand.captures.calls("c") or ()) == 1
        assert stand.captures.size_bytes <= 3.5 * size
