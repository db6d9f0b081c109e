"""A rollout goes on where its worker died: nothing that the model has answered is asked again.

A real system; the engine is a real HTTP server in this process, which counts what it is asked. One
rollout makes 19 calls of a tool that counts, and the verifier wants exactly 19: a call that is lost or
executed twice costs the reward.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web
from gym_runtime import connect
from gym_runtime.client import Client, make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(90)]

TURNS, LOST_AT = 20, 14
ENVIRONMENT = "example_session_state_mgmt"
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "count"}]},
    "initial_count": 0,
    "expected_count": TURNS - 1,
}


class Engine:
    """Answers with a tool call until the tool was called often enough, then with a message.

    From `LOST_AT` on it waits until the workers are lost, however long a test takes to find them.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.lost = anyio.Event()
        self.url = ""
        self.changed = anyio.Event()

    async def respond(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.changed.set()
        self.changed = anyio.Event()
        await anyio.sleep(0.1)
        if self.asked >= LOST_AT:
            await self.lost.wait()
        body = await request.json()
        calls = sum(item.get("type") == "function_call_output" for item in body["input"])
        item: dict[str, object] = {
            "type": "function_call",
            "id": f"fc_{calls}",
            "call_id": f"call_{calls}",
            "name": "increment_counter",
            "arguments": '{"count": 1}',
        }
        if calls == TURNS - 1:
            content = [{"type": "output_text", "text": "done", "annotations": []}]
            item = {"type": "message", "id": "m", "role": "assistant", "content": content}
        answer = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
        return web.json_response(answer)

    async def until(self, asked: int) -> None:
        while self.asked < asked:
            await self.changed.wait()


@asynccontextmanager
async def engine() -> AsyncGenerator[Engine]:
    counting = Engine()
    app = web.Application()
    app.router.add_post("/v1/responses", counting.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    counting.url = f"http://{host}:{port}/v1"
    try:
        yield counting
    finally:
        await runner.cleanup()


async def busy(gym: Client, kind: str) -> int:
    """The process of the worker of a kind that has the rollout."""
    while True:
        for worker in await gym.workers():
            if worker.kind == kind and worker.in_use:
                return worker.pid
        await anyio.sleep(0.05)


async def rollout(
    *kinds: str, frozen: bool = False, durability: str = "turn"
) -> tuple[RolloutRecord, Engine]:
    """One rollout; at turn `LOST_AT` the workers of these kinds that have it are killed, or frozen."""
    async with engine() as counting:
        model = ModelSettings(provider="openai", name="m", urls=(counting.url,), api="responses")
        pools = make_pools([ENVIRONMENT], model, workers=2, concurrency=8)
        records: list[RolloutRecord] = []
        async with running(SystemSpec(pools=pools)) as system, connect(system.url) as gym:

            async def run() -> None:
                rows = gym.rollouts([ROW], environment=ENVIRONMENT, durability=durability)  # pyright: ignore
                records.extend([record async for record in rows])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await counting.until(5)
                pids = [await busy(gym, kind) for kind in kinds]
                await counting.until(LOST_AT)
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP if frozen else signal.SIGKILL)
                counting.lost.set()
                if frozen:
                    await anyio.sleep(9)
                    for pid in pids:
                        os.kill(pid, signal.SIGCONT)
    (record,) = records
    return record, counting


def gym_part(record: RolloutRecord) -> dict[str, int]:
    return json.loads(bytes(record.row))["_gym"]


async def test_another_agent_worker_goes_on_where_one_died() -> None:
    record, counting = await rollout("agent")
    assert record.outcome == Completed()
    assert record.reward == 1.0
    assert record.turns == TURNS
    assert counting.asked <= TURNS + 1, "only what was on its way may be asked again"
    assert gym_part(record)["resumed_turns"] >= LOST_AT - 2


async def test_a_session_is_rebuilt_elsewhere_when_its_worker_died() -> None:
    record, counting = await rollout("resource")
    assert record.outcome == Completed()
    assert record.reward == 1.0
    assert counting.asked == TURNS
    assert gym_part(record)["rebuilt_sessions"] == 1
    assert record.attempt == 1


@pytest.mark.soak
async def test_both_at_once() -> None:
    record, counting = await rollout("agent", "resource")
    assert record.outcome == Completed()
    assert record.reward == 1.0
    assert counting.asked <= TURNS + 1
    assert gym_part(record)["resumed_turns"] >= LOST_AT - 2


@pytest.mark.soak
async def test_an_agent_worker_that_was_frozen_is_overtaken_and_stops() -> None:
    record, counting = await rollout("agent", frozen=True)
    assert record.outcome == Completed()
    assert record.reward == 1.0
    assert counting.asked <= TURNS + 3
    assert gym_part(record)["resumed_turns"] >= LOST_AT - 2


@pytest.mark.soak
async def test_without_a_journal_the_rollout_starts_anew() -> None:
    record, counting = await rollout("agent", durability="result")
    assert record.outcome == Completed()
    assert record.reward == 1.0
    assert counting.asked >= TURNS + LOST_AT - 2
    assert gym_part(record)["resumed_turns"] == 0
