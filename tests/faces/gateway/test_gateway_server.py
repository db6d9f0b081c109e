"""The gateway over HTTP: whose call it is, limits, deadlines, addresses."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import anyio
import pytest
from faces.gateway.gateway_calls import ALL, ANTHROPIC, CHAT, RESPONSES
from faces.gateway.running_gateway import RunningGateway, standing
from gym_data.web.listener import serving
from gym_faces.gateway.gateway_server import Gateway
from gym_runtime.errors import NoWorker, PayloadTooLarge, RuntimeFault
from gym_runtime.messages.calls import ModelAnswer, Request, pack
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_testing.background import settled
from gym_testing.small_system import Hang, answer
from msgspec import Raw
from runtime.workers.hosting import serving as serving_pools
from tables import table
from time_limits import busy

pytestmark = pytest.mark.anyio


@table(
    ("prefix", "headers", "rollout"),
    [
        ("", {}, ""),
        ("", {"authorization": "Bearer sk-real"}, ""),
        ("", {"authorization": "Bearer gym-{r.1.2}"}, "r.1.2"),
        ("", {"authorization": "bearer  gym-{r.1.2}"}, "r.1.2"),
        ("", {"x_api_key": "gym-{r.1.2}"}, "r.1.2"),
        ("", {"x_api_key": "sk-real", "authorization": "Bearer gym-{r.1.2}"}, "r.1.2"),
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


@table("stream", [False, True])
@table(("path", "body"), ALL)
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
    # A call that waits for a processor reaches the engine within its deadline, too.
    async with standing(Hang(), timeout_s=0.5 * busy()) as stand:
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


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engines_malformed_item_is_said_and_is_no_bug(
    stream: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    malformed = {"type": "message", "id": 3, "role": "assistant", "content": "x"}
    async with standing(answer(malformed)) as stand:
        for path, body in (ALL[0], ALL[2]):
            status, said, _ = await stand.post(path, {**body, "stream": stream})
            assert (status, said["error"]["message"]) == (
                500,
                "the engine's answer cannot be read: Expected `str | null`, got `int` - at `$.id`",
            )
    assert "Traceback" not in capsys.readouterr().err


async def test_addresses_that_are_none() -> None:
    async with standing(answer("x")) as stand:
        status, said, _ = await stand.post("/v1/completions", CHAT)
        assert (status, said["error"]["message"]) == (
            404,
            "POST /v1/completions: this is not served here; there are /v1/responses, /v1/chat/completions, "
            "/v1/messages, Gemini's generateContent and /v1/models",
        )
        for path in ("/chat/completions", "/v1/v1/chat/completions"):
            status, said, _ = await stand.post(path, CHAT)
            assert (status, said["error"]["message"]) == (
                404,
                f"POST {path}: unknown path; "
                "a base URL ends with /v1, or without it for Anthropic's and Google's clients",
            )
        status, said = await stand.get("/v1/models/gpt-5")
        assert (status, said["error"]["message"]) == (
            404,
            "there is no model 'gpt-5'; use one of policy, judge",
        )
        assert (await stand.get(f"{stand.at('r')}/v1/models/judge"))[1]["id"] == "judge"
        status, said, _ = await stand.post("/v1/messages/batches", ANTHROPIC)
        assert (status, said["type"], said["error"]["type"]) == (404, "error", "not_found_error")
        for path, _ in ALL:
            status, said = await stand.get(f"{stand.at('r')}{path}")
            assert (status, said["error"]["message"].rpartition(": ")[2]) == (405, "it is asked by POST")
        assert await stand.get("/health") == (200, {"in_use": 0, "capacity": 1024})
