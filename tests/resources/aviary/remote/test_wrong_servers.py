"""Aviary servers that do everything wrong, or are not there."""

from __future__ import annotations

import json
import socket

import anyio
import gym_runtime
import pytest
from aiohttp import web
from data.web.site import Site
from gym_data.web import http_exchange
from gym_resources import aviary_remote
from gym_resources.aviary_episodes import task_server
from gym_runtime.errors import ResourceError, ServiceUnavailable, SessionLost
from msgspec.structs import replace
from resources.aviary.remote.remote_runs import played, resource
from resources.aviary.remote.wrong_answers import WRONG, hang, raw, saying
from resources.judging import call, row

pytestmark = pytest.mark.anyio


async def failing(task: bytes) -> ResourceError:
    with pytest.raises(ResourceError) as raised:
        await played(task, [call("add", {"x": 1})])
    return raised.value


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("path", ["/close_old_envs", "/start", "/reset", "/step"])
async def test_whatever_a_server_does_wrong_is_a_failure(
    served: Site, path: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.answers[path] = WRONG[wrong]
    if wrong == "hang":
        monkeypatch.setattr(task_server, "SERVER", replace(task_server.SERVER, timeout_s=1.0))
    error = await failing(row(task_idx=0))
    assert isinstance(error, ServiceUnavailable)
    assert error.stage == "resource"
    assert "a-secret" not in error.message
    assert error.retryable is (wrong in ("503", "hang", "elsewhere"))
    assert served.asked.count(path) == 1, "no call is repeated"
    assert served.asked.count("/close") == (path in ("/reset", "/step")), "what was started is closed"


@pytest.mark.parametrize("path", ["/reset", "/step"])
async def test_an_environment_that_the_server_has_closed_starts_again(served: Site, path: str) -> None:
    served.answers[path] = served.answers["/close"] = saying({"detail": "not found"}, 404)
    error = await failing(row(task_idx=0))
    assert isinstance(error, SessionLost)
    assert (error.stage, error.retryable) == ("resource", True)


@pytest.mark.parametrize("reward", ["NaN", "1e999", '"1"', "null", "true"])
async def test_a_reward_is_a_number(served: Site, reward: str) -> None:
    served.answers["/step"] = raw(f"[[], {reward}, true, false]".encode())
    assert isinstance(await failing(row(task_idx=0)), ServiceUnavailable)


async def test_old_environments_are_closed_once(served: Site) -> None:
    for _ in range(3):
        _, _, (done,) = await played(row(task_idx=0), [call("add", {"x": 1})])
        assert done.reward == 1.0
    assert served.asked == ["/close_old_envs", *3 * ["/start", "/reset", "/step", "/close"]]
    assert json.loads(served.bodies[0]) == {"last_used": 3600.0}
    assert all(headers["X-API-Key"] == "a-secret" for headers in served.headers)


async def test_what_a_cancelled_rollout_has_started_is_closed(served: Site) -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def late(request: web.Request) -> web.Response:
        began.set()
        await go_on.wait()
        return web.json_response({"env_id": "late"})

    served.answers["/start"] = late
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resource().open, row(task_idx=0))
        await began.wait()
        tasks.cancel_scope.cancel()
        go_on.set()
    assert served.asked == ["/close_old_envs", "/start", "/close"]
    assert json.loads(served.bodies[-1]) == {"env_id": "late"}


async def test_a_cancelled_rollout_waits_for_no_server(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aviary_remote, "LAST_ANSWER_S", 0.1)
    began = anyio.Event()

    async def never(request: web.Request) -> web.Response:
        began.set()
        return await hang(request)

    served.answers["/start"] = never
    with anyio.fail_after(10):  # the request itself may take 15 s
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resource().open, row(task_idx=0))
            await began.wait()
            tasks.cancel_scope.cancel()


async def test_a_server_that_is_not_there_is_a_failure_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVIARY_SERVER_URL", "http://127.0.0.1:1")
    with anyio.fail_after(15):
        error = await failing(row(task_idx=0))
    assert (error.stage, error.retryable) == ("resource", True)
    assert "aviary is unavailable: 127.0.0.1 cannot be reached" in error.message


async def test_a_host_that_takes_no_connection_is_a_failure_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "HTTP_CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # the backlog is full, so the kernel drops what else comes
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        monkeypatch.setenv("AVIARY_SERVER_URL", f"http://127.0.0.1:{port}")
        with anyio.fail_after(10):
            error = await failing(row(task_idx=0))
        for one in waiting:
            one.close()
    assert "no connection within 0.3 s" in error.message


@pytest.mark.slow
async def test_a_server_that_fails_is_a_failed_rollout(served: Site) -> None:
    served.answers["/step"] = WRONG["500"]
    task = {"responses_create_params": {"input": []}, "task_idx": 0}
    name = "aviary_remote"
    async with gym_runtime.connect(model="scripted/tool-then-message", environments=[name]) as gym:
        [record] = [record async for record in gym.rollouts([task], environment=name)]
    assert isinstance(record.outcome, gym_runtime.Failed)
    assert (record.outcome.fault.kind, record.outcome.fault.stage) == ("resource", "resource")
    assert "boom" in record.outcome.fault.message
    assert record.reward is None
    assert served.asked.count("/close") == served.asked.count("/start")
