"""Our environments behind OpenEnv's API, by our own guest for its servers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import msgspec
import pytest
from faces.gym_server.running_server import COUNTER, choice_row, counter_row
from gym_agents.step_loop import Agent as StepLoop
from gym_data.web.listener import serving
from gym_faces.gym_server.openenv_server import OpenEnvServer
from gym_runtime.environment import catalogue
from gym_testing.small_system import Engine, answer, function_call, small_system

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(name: str, *rows: dict[str, Any], **more: Any) -> AsyncGenerator[str]:
    """An environment's address; it has these rows."""
    async with small_system() as system:
        await system.add_resource(catalogue.environment(name))
        (found,) = await system.client.environments(name)
        server = OpenEnvServer(system.client, found, [msgspec.json.encode(row) for row in rows], **more)
        async with serving(server, stop_s=0.1) as url:
            yield url


@pytest.mark.parametrize(
    ("name", "rows", "turns", "rewards"),
    [
        (
            COUNTER,
            [counter_row(), counter_row(expected_count=9)],
            [
                function_call("increment_counter", '{"count": 1}', "1"),
                function_call("submit", '{"answer": "4"}', "2"),
            ],
            [1.0, 0.0],
        ),
        ("mcqa", [choice_row()], [function_call("submit", '{"answer": "\\\\boxed{B}"}', "1")], [1.0]),
    ],
)
async def test_our_guest_plays_our_server(
    name: str, rows: list[dict[str, Any]], turns: list[Any], rewards: list[float]
) -> None:
    async with served(name, *rows) as url, small_system() as system:
        await system.add_resource(catalogue.environment(f"openenv:{url}"))
        await system.add_model(Engine(*map(answer, turns)))
        await system.add_agent({"step_loop": StepLoop()})
        listed = catalogue.environment(f"openenv:{url}?split=train").definition.generate
        assert listed is not None
        resets = await anyio.to_thread.run_sync(lambda: list(listed(None, 0)))
        assert [row["reset"]["index"] for row in resets] == list(range(len(rows)))
        records = system.client.rollouts(resets, environment=f"openenv:{url}", ordered=True)
        assert [record.reward async for record in records] == rewards


async def test_rows_are_tasks_of_one_split() -> None:
    rows = [choice_row(), choice_row(expected_answer="A")]
    async with served("mcqa", *rows) as url, aiohttp.ClientSession() as http:

        async def ask(path: str, **body: Any) -> tuple[int, Any]:
            async with http.post(f"{url}/{path}", json=body) as answer:
                return answer.status, await answer.json()

        async with http.get(f"{url}/list_environments") as names, http.get(f"{url}/mcqa/splits") as splits:
            assert (await names.json(), await splits.json()) == (
                ["mcqa"],
                [{"name": "train", "type": "train"}],
            )
        assert await ask("mcqa/num_tasks", split="train") == (200, {"num_tasks": 2})
        _, everything = await ask("MCQA/tasks", split="train")
        _, last = await ask("mcqa/task_range", split="train", start=-1)
        assert [one["index"] for one in everything["tasks"]] == [0, 1]
        assert last["tasks"] == everything["tasks"][1:]
        assert "expected_answer" not in str(everything)
        assert await ask("mcqa/task", split="train", index=1) == (200, {"task": everything["tasks"][1]})
        assert (await ask("mcqa/task", split="train", index=2))[0] == 400
        assert (await ask("mcqa/tasks", split="dev"))[0] == 422
        assert (await ask("other/tasks", split="train"))[0] == 404


async def test_tools_are_called_beside_the_connection() -> None:
    """As `MCPToolClient` of openenv 0.10 does it, for several sessions."""
    async with served(COUNTER, counter_row(), sessions=2) as url, aiohttp.ClientSession() as http:

        async def ask(method: str, **params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            async with http.post(f"{url}/mcp", json=body) as answer:
                said = await answer.json()
            assert said["id"] == 7
            return said.get("result") or said["error"]["message"]

        names = [(await ask("openenv/session/create"))["session_id"] for _ in range(3)]
        assert "connect to /ws" in await ask("tools/list", session_id=names[2])
        async with http.ws_connect(f"{url}/ws?session_id={names[0]}") as lost:
            assert (await lost.receive_json())["data"]["code"] == "SESSION_ERROR"  # too many were waiting
        async with (
            http.ws_connect(f"{url}/ws?session_id={names[1]}") as first,
            http.ws_connect(f"{url}/ws?session_id={names[2]}") as second,
        ):
            await second.send_json({"type": "state"})  # it is connected when it answers
            await second.receive_json()
            assert "reset first" in await ask("tools/list", session_id=names[2])
            for socket in (first, second):
                await socket.send_json({"type": "reset", "data": {"index": 0}})
                await socket.receive_json()
            listed = await ask("tools/list", session_id=names[1])
            assert {"increment_counter", "submit"} <= {one["name"] for one in listed["tools"]}
            call = {"name": "increment_counter", "arguments": {"count": 1}}
            said = await ask("tools/call", session_id=names[1], **call)
            assert (said["reward"], said["done"], said["tool_name"]) == (None, False, "increment_counter")
            submit = {"name": "submit", "arguments": {"answer": "4"}}
            rewards = [(await ask("tools/call", session_id=name, **submit))["reward"] for name in names[1:]]
            assert rewards == [1.0, 0.0]  # each has its own counter
            assert "no method 'rm'" in await ask("rm", session_id=names[1])
        assert "connect to /ws" in await ask("tools/call", session_id="", **submit)
        assert (await ask("openenv/session/close", session_id=names[1]))["closed"]
        async with http.post(f"{url}/mcp", data=b"[") as broken:
            assert (await broken.json())["error"]["code"] == -32602


async def test_a_reset_that_names_no_row_takes_any_of_them() -> None:
    async with (
        served("mcqa", *(choice_row(expected_answer=one) for one in "AB"), choice_row()) as url,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{url}/ws") as socket,
    ):
        rewards: set[float] = set()
        for _ in range(60):
            for kind, data in (
                ("reset", {}),
                ("step", {"tool_name": "submit", "arguments": {"answer": "\\boxed{A}"}}),
            ):
                await socket.send_json({"type": kind, "data": data})
                said = (await socket.receive_json())["data"]
            rewards.add(said["reward"])
        assert rewards == {0.0, 1.0}
        await socket.send_json({"type": "reset", "data": {"split": "dev"}})
        assert "only 'train'" in (await socket.receive_json())["data"]["message"]
        await socket.send_json({"type": "step", "data": {"tool_name": "submit"}})
        assert "reset first" in (await socket.receive_json())["data"]["message"]


async def test_what_is_refused() -> None:
    async with served("mcqa", choice_row(), sessions=1) as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/health") as health, http.get(f"{url}/schema") as schema:
            assert (await health.json(), (await schema.json())["action"]["title"]) == (
                {"status": "healthy"},
                "CallToolAction",
            )
        async with http.get(f"{url}/ws", headers={"origin": "http://evil"}) as page:
            assert page.status == 403
        async with http.ws_connect(f"{url}/ws") as socket:

            async def ask(kind: str, **data: Any) -> Any:
                await socket.send_json({"type": kind, "data": data})
                return (await socket.receive_json())["data"]

            assert "reset first" in (await ask("step", tool_name="submit"))["message"]
            assert "index is 0 to 0" in (await ask("reset", index=5))["message"]
            assert "only 'train'" in (await ask("reset", index=0, split="dev"))["message"]
            assert (await ask("nothing"))["code"] == "VALIDATION_ERROR"
            assert (await ask("reset", seed=7))["observation"]["prompt"][0]["content"] == "A or B?"
            assert "no tool 'rm'" in (await ask("step", tool_name="rm"))["message"]
            assert "takes a text" in (await ask("step", tool_name="submit"))["message"]
            assert (await ask("state")) == {"step_count": 2, "done": False}
            async with http.ws_connect(f"{url}/ws") as second:
                assert (await second.receive_json())["data"]["code"] == "CAPACITY_REACHED"
            await socket.send_str("{")
            assert (await socket.receive_json())["type"] == "error"
            judged = await ask("step", tool_name="submit", arguments={"answer": "\\boxed{A}"})
            assert (judged["reward"], judged["done"]) == (0.0, True)
            assert "reset first" in (await ask("step", tool_name="submit"))["message"]


@pytest.mark.slow
async def test_arguments_are_an_object_whose_lists_do_not_hold_the_loop() -> None:
    lists = '{"count": 1, "note": [' + ",".join(["[]"] * 1_300_000) + "]}"
    step = '{"type": "step", "data": {"tool_name": "increment_counter", "arguments": %s}}'
    async with (
        served(COUNTER, counter_row()) as url,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{url}/ws") as socket,
    ):

        async def ask(message: str) -> Any:
            await socket.send_str(message)
            return (await socket.receive_json())["data"]

        await ask('{"type": "reset"}')
        began_s = time.thread_time()
        assert (await ask(step % lists))["observation"]["result"] == '{"success":true}'
        # Of the worker, too, which is in this process.
        assert time.thread_time() - began_s < 0.3
        assert "missing required field `count`" in (await ask(step % "null"))["observation"]["result"]
        assert "an object is expected, not [1]" in (await ask(step % "[1]"))["message"]
