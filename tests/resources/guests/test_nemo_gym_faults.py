"""Resources servers behind HTTP that answer wrongly, are gone, or come back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from faces.gym_server.running_server import choice_row, counter_row
from gym_runtime.messages.outcomes import Failed
from gym_testing.small_system import Engine, answer, function_call
from resources.guests.server_guest import guest, made

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def stub(**answers: tuple[int, Any]) -> AsyncGenerator[tuple[str, list[tuple[str, Any]]]]:
    """A server that gives fixed answers, by path; with what it was asked."""
    asked: list[tuple[str, Any]] = []

    async def respond(request: web.Request) -> web.Response:
        path = request.path.strip("/")
        asked.append((path, await request.json()))
        status, body = answers.get(path, (404, {"detail": "Not Found"}))
        if isinstance(body, bytes):
            return web.Response(body=body, status=status, content_type="application/json")
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


async def test_names_of_paths_are_no_tools() -> None:
    names = ("verify", "seed_session", "../run", "a/b", "x?y=1", "", "close_session", "crash", "busy")
    calls = [function_call(name, "{}", f"c{number}") for number, name in enumerate(names)]
    async with (
        stub(seed_session=(200, {}), crash=(500, "boom"), verify=(200, {"reward": 0.5}), busy=(200, "b")) as (
            url,
            asked,
        ),
        guest(url, Engine(answer(*calls), answer("done"))) as (system, name),
    ):
        (record,) = await made(system, name, counter_row())
    assert record.reward == 0.5
    assert [path for path, _ in asked] == ["seed_session", "crash", "busy", "verify"]
    outputs = [one for one in json.loads(bytes(record.row))["response"]["output"] if "output" in one]
    assert [one["output"] for one in outputs[:7]] == ['{"detail":"Not Found"}'] * 7
    assert [one["output"] for one in outputs[7:]] == ['"boom"', '"b"']


@pytest.mark.parametrize(
    ("verify", "said"),
    [
        ((500, "no"), "answered 500"),
        ((422, {"detail": "number is missing"}), "number is missing"),
        ((200, {"reward": None}), "no verdict"),
        ((200, {"reward": 0.0, "_ng_failure_class": "judge_failed"}), "judge_failed"),
        ((302, {}), "answered 302"),
        ((200, b'{"reward":1,"x":"\xff"}'), "no verdict"),
        ((200, b'{"reward":1,"x":%b}' % (b"9" * 5000)), "no verdict"),
        ((200, b'{"reward":1,"x":[%b[]]}' % (b"[]," * 1_000_000)), "more than 100,000 objects and lists"),
        ((200, b'{"reward":1,%b"y":1}' % b"".join(b'"%d":1,' % n for n in range(400_000))), "340,000 values"),
    ],
)
async def test_what_is_no_verdict_is_no_reward(verify: tuple[int, Any], said: str) -> None:
    async with (
        stub(seed_session=(200, {}), verify=verify) as (url, _),
        guest(url, Engine(answer("x"))) as (system, name),
    ):
        (record,) = await made(system, name, choice_row(), max_attempts=1)
        assert record.reward is None
        assert isinstance(record.outcome, Failed)
        assert said in record.outcome.fault.message
        assert record.outcome.fault.kind == ("task" if verify[0] == 422 else "resource")


async def test_the_verifiers_fields_and_components() -> None:
    body = {"reward": 0.5, "reward_components": {"a": 0.5}, "expected_answer": "C", "options": [], "extra": 1}
    async with (
        stub(seed_session=(200, {}), verify=(200, body)) as (url, asked),
        guest(url, Engine(answer("x"))) as (system, name),
    ):
        (record,) = await made(system, name, choice_row())
    row = json.loads(bytes(record.row))
    assert (row["reward"], row["reward_components"], row["extra"]) == (0.5, {"a": 0.5}, 1)
    assert (row["expected_answer"], row["options"]) == ("C", [])
    posted = asked[-1][1]
    assert posted["grading_mode"] == "strict_single_letter_boxed"  # fields that no task here declares
    assert {"id", "created_at", "model", "object", "output", "tools"} <= set(posted["response"])


async def test_a_response_that_is_repeated_may_have_many_tokens() -> None:
    body = {"reward": 1.0, "response": {"tokens": [1] * 500_000}, "extra": [1]}
    async with (
        stub(seed_session=(200, {}), verify=(200, body)) as (url, _),
        guest(url, Engine(answer("x"))) as (system, name),
    ):
        (record,) = await made(system, name, choice_row())
    assert (record.reward, json.loads(bytes(record.row))["extra"]) == (1.0, [1])


async def test_a_server_that_is_gone_is_a_failure_and_no_reward() -> None:
    async with stub() as (url, _):
        pass
    async with guest(url, Engine(answer("x"))) as (system, name):
        (record,) = await made(system, name, choice_row(), max_attempts=1)
        assert "cannot be reached" in record.ending


async def test_a_server_that_comes_back_costs_an_attempt_at_most() -> None:
    """Its state is gone with the connection: the rollout starts again, with a new session."""
    seeded: list[str] = []

    async def seed(request: web.Request) -> web.Response:
        seeded.append("")
        answer = web.json_response({})
        answer.set_cookie("session", str(len(seeded)))
        return answer

    async def call(request: web.Request) -> web.Response:
        if request.cookies["session"] == "1":
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"session": request.cookies["session"]})

    async def verify(request: web.Request) -> web.Response:
        return web.json_response({"reward": float(request.cookies["session"])})

    app = web.Application()
    app.add_routes([web.post("/seed_session", seed), web.post("/look", call), web.post("/verify", verify)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with guest(url, Engine(answer(function_call("look")), answer("x"))) as (system, name):
            (record,) = await made(system, name, choice_row())
            assert record.reward == 2.0
    finally:
        await runner.cleanup()
