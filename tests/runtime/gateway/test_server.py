"""The gateway's HTTP side: whose call it is, captures, limits, streams that wait, clients that leave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from gym_models.replay import Adapter as Replay
from gym_models.scripted import Adapter as Scripted
from gym_runtime.errors import ModelRefused, NoWorker, PayloadTooLarge, RuntimeFault
from gym_runtime.gateway.capture import Captures
from gym_runtime.gateway.listener import serving
from gym_runtime.gateway.server import Gateway
from gym_runtime.messages.calls import ModelAnswer, Prefix, Request, Tokens, pack
from gym_runtime.messages.responses import decode_response
from gym_runtime.recordings.calls_file import CallsFile
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.testing.background import settled
from gym_runtime.testing.small_system import Engine, Hang, answer, function_call
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call, output
from msgspec import Raw
from runtime.gateway.running_gateway import RunningGateway, standing
from runtime.workers.hosting import serving as serving_pools

pytestmark = pytest.mark.anyio

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
ANTHROPIC = {**CHAT, "max_tokens": 9}
RESPONSES = {"model": "policy", "input": "hi"}
ALL = [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSES), ("/v1/messages", ANTHROPIC)]


# -- whose call it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "headers", "rollout"),
    [
        ("", {}, ""),
        ("", {"authorization": "Bearer sk-real"}, ""),
        ("", {"authorization": "Bearer gym-{r.1.2}"}, "r.1.2"),
        ("", {"x_api_key": "gym-{r.1.2}"}, "r.1.2"),
        ("/rollouts/{r.1.2}", {"authorization": "Bearer gym-{other}"}, "r.1.2"),
        ("/rollouts/r.1.2", {"authorization": "Bearer gym-{r.1.2}"}, "r.1.2"),
        ("/rollouts/r.1.2", {"authorization": "Bearer SECRET"}, "r.1.2"),
        ("/ng-rollout/{3-4-a1}", {}, "3-4-a1"),
        ("/ng-rollout/{3-4}/training-token-capture", {}, "3-4"),
    ],
)
async def test_the_path_or_the_key_says_whose_call_it_is(prefix: str, headers: Any, rollout: str) -> None:
    async with standing(answer("x")) as stand:
        named = {name: with_names(stand, value) for name, value in headers.items()}
        path = with_names(stand, prefix)
        status, _, _ = await stand.post(f"{path}/v1/chat/completions", CHAT, **named)
        ((_, asked),) = stand.engine.calls.items
        captured = stand.captures.calls(rollout)
    assert (status, asked.rollout) == (200, rollout)
    assert bool(captured) == bool(rollout)


def with_names(stand: RunningGateway, text: str) -> str:
    """The text with names in the place of ``{ID}``."""
    names = stand.gateway.names
    return re.sub(r"\{(.+?)\}", lambda found: names.of(found[1]), text).replace("SECRET", names.secret)


# -- what is captured ----------------------------------------------------------------------------------


async def test_a_rollouts_calls_can_be_read_and_forgotten() -> None:
    scripted = Scripted(ModelSettings.parse("scripted/echo"))
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
    assert [call.prefix for call in calls] == [None, Prefix(ids=b"\1\0\0\0\2\0\0\0", items=3)]
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


async def test_the_model_names_a_pool_or_means_the_first() -> None:
    async def handle(pool: str, request: Request, budget: RetryBudget) -> Raw:
        return pack(answer(pool))

    async with (
        standing() as stand,
        serving_pools(stand.system.bus, handle, worker="both", pools=["policy", "judge"]),
    ):
        said = [
            (await stand.post("/v1/responses", {**RESPONSES, "model": model}))[1]
            for model in ("judge", "policy", "gpt-5")
        ]
    texts = [one["output"][0]["content"][0]["text"] for one in said]
    assert texts == ["judge", "policy", "policy"]


# -- limits --------------------------------------------------------------------------------------------


async def test_above_its_capacity_it_says_so_at_once_in_each_dialect() -> None:
    async with standing(Hang(), capacity=1) as stand, anyio.create_task_group() as tasks:
        tasks.start_soon(stand.post, *ALL[0])
        await stand.engine.calls.until(1)
        for path, body in ALL:
            status, said, raw = await stand.post(path, body)
            assert (status, raw.headers["retry-after"], raw.headers["x-should-retry"]) == (429, "1", "true")
            assert "capacity of 1" in said["error"]["message"]
            expected = "rate_limit_error" if body is ANTHROPIC else "requests"
            assert said["error"]["type"] == expected
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_client_that_leaves_aborts_its_call(path: str, body: Any, stream: bool) -> None:
    async with standing(Hang()) as stand, anyio.create_task_group() as tasks:
        tasks.start_soon(stand.post, path, {**body, "stream": stream})
        await stand.engine.calls.until(1)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await stand.engine.cancelled.until(1)
            await settled(lambda: stand.gateway.admission.in_use == 0)


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_call_has_a_deadline(path: str, body: Any) -> None:
    async with standing(Hang(), timeout_s=0.05) as stand:
        status, said, raw = await stand.post(path, body)
        await stand.engine.cancelled.until(1)
    assert (status, raw.headers["x-should-retry"]) == (504, "false")
    assert "deadline" in said["error"]["message"]


async def test_a_body_that_is_too_large() -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post("/v1/messages", b" " * (32 * 2**20 + 1))
    assert (status, said["error"]["type"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    ("error", "statuses"),
    [(NoWorker("x"), (503, 529)), (PayloadTooLarge("x"), (413, 413)), (RuntimeFault("x"), (500, 500))],
)
async def test_what_an_error_is_over_http(error: Exception, statuses: tuple[int, int]) -> None:
    async def ask(question: Any) -> ModelAnswer:
        raise error

    assert await statuses_of(ask) == statuses


async def test_a_bug_ends_one_call_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    async def ask(question: Any) -> ModelAnswer:
        raise ZeroDivisionError

    assert await statuses_of(ask) == (500, 500)


async def statuses_of(ask: Any) -> tuple[int, int]:
    async with serving(Gateway(ask)) as url, aiohttp.ClientSession() as http:
        async with http.post(f"{url}/v1/responses", json=RESPONSES) as answered:
            first = answered.status
        async with http.post(f"{url}/v1/messages", json=ANTHROPIC) as answered:
            return first, answered.status


# -- streams that wait ---------------------------------------------------------------------------------


class Later:
    """An engine that answers when it is told to."""

    def __init__(self, outcome: ModelAnswer | Exception) -> None:
        self.go = anyio.Event()
        self._outcome = outcome

    async def respond(self, call: Any, context: Any) -> ModelAnswer:
        await self.go.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def stream_of(stand: RunningGateway, path: str, body: Any) -> str:
    """What comes before the answer, which is then given, and what comes with it."""
    async with stand.http.post(stand.url + path, json={**body, "stream": True}) as stream:
        assert stream.status == 200
        early = await stream.content.readuntil(b"\n\n")
        assert early == b": at work\n\n"
        stand.engine.go.set()
        return (await stream.content.read()).decode()


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [(*ALL[0], "[DONE]"), (*ALL[1], "response.completed"), (*ALL[2], "message_stop")],
)
async def test_a_stream_shows_that_it_is_alive(path: str, body: Any, last: str) -> None:
    async with standing(Later(answer("x")), quiet_s=0.01) as stand:
        rest = await stream_of(stand, path, body)
    assert last in rest.rstrip("\n").rpartition("\n\n")[2]


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        (*ALL[0], 'data: {"error":{"message":"no"'),
        (*ALL[1], 'event: response.created\ndata: {"type":"response.created","sequence_number":0,'),
        (
            *ALL[2],
            'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"no"}',
        ),
    ],
)
async def test_an_error_in_a_stream_that_has_begun(path: str, body: Any, last: str) -> None:
    async with standing(Later(ModelRefused("no")), quiet_s=0.01) as stand:
        rest = await stream_of(stand, path, body)
    assert rest.replace(": at work\n\n", "").startswith(last)


# -- addresses -----------------------------------------------------------------------------------------


async def test_addresses_that_are_none() -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post("/v1/completions", CHAT)
        assert (status, said["error"]["message"]) == (
            404,
            "POST /v1/completions: unknown path; "
            "a base URL ends with /v1, or without it for Anthropic's client",
        )
        status, said = await stand.get("/v1/models/gpt-5")
        assert (status, said["error"]["message"]) == (
            404,
            "there is no model 'gpt-5'; use one of policy, judge",
        )
        assert (await stand.get(f"{stand.at('r')}/v1/models/judge"))[1]["id"] == "judge"
        status, said, _ = await stand.post("/v1/messages/count_tokens", ANTHROPIC)
        assert (status, said["type"], said["error"]["type"]) == (404, "error", "not_found_error")
        assert await stand.get("/health") == (200, {"in_use": 0, "capacity": 1024})
