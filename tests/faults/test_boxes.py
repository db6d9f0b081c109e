"""A rollout that works in a box goes on when its workers are killed: with the same files, from the same turn.

A real system, a scripted engine behind a real HTTP server. Each command says the time, so repeating the
commands would be noticed; each appends to a file, so one that was lost or made twice changes the files.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import pytest
from aiohttp import web
from faults.test_journal import busy, gym_part
from gym_resources.swe import local_rows
from gym_runtime import connect
from gym_runtime.bus import nats
from gym_runtime.bus.interface import Bus
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_sandbox import bubblewrap
from gym_sandbox.sandbox_errors import SetupError

try:
    bubblewrap.check(os.getpid())
    _refusal = ""
except SetupError as error:
    _refusal = error.message
pytestmark = [
    *(pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(240)),
    pytest.mark.skipif(bool(_refusal), reason=_refusal),
]
ROW = next(local_rows.agent_rows(1, 7))
TURNS = 8
STOPS = {2: ("agent", "resource"), 4: ("agent",), 6: ("resource",)}
"""Which workers are killed while the command of a turn runs."""
HASH = "find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def command(turn: int) -> str:
    if turn == TURNS:
        return HASH
    if turn > TURNS:
        return SUBMIT
    wait = "sleep 4; " if turn in STOPS else ""
    return (
        f"{wait}date +%N; echo {turn} >>log; mkdir -p d{turn}; seq {turn}000 >d{turn}/f; rm -rf d{turn - 2}"
    )


class Engine:
    """Answers with the command of the turn, and notes which turns it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.url = ""

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        turn = sum(item.get("type") == "function_call_output" for item in body["input"])
        self.asked.append(turn)
        item = {
            "type": "function_call",
            "id": f"fc_{turn}",
            "call_id": f"call_{turn}",
            "name": "bash",
            "arguments": json.dumps({"command": command(turn)}),
        }
        answer = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
        return web.json_response(answer)


@asynccontextmanager
async def engine() -> AsyncGenerator[Engine]:
    scripted = Engine()
    app = web.Application()
    app.router.add_post("/v1/responses", scripted.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}/v1"
    try:
        yield scripted
    finally:
        await runner.cleanup()


class Played(NamedTuple):
    record: RolloutRecord
    asked: list[int]

    @property
    def outputs(self) -> list[str]:
        items: Sequence[dict[str, str]] = json.loads(bytes(self.record.row))["response"]["output"]
        return [item["output"] for item in items if item["type"] == "function_call_output"]


async def stored(bus: Bus, turns: int) -> None:
    """Return when so many turns are in the journal; the command of the last one is running then."""
    while True:
        found = await bus.counts("journal.>")
        if any(count >= turns for subject, count in found.items() if ".role." not in subject):
            return
        await anyio.sleep(0.02)


async def played(stops: dict[int, tuple[str, ...]]) -> Played:
    async with engine() as scripted:
        model = ModelSettings(provider="openai", name="m", urls=(scripted.url,), api="responses")
        pools = make_pools(["mini_swe_agent"], model, workers=2, concurrency=8)
        records: list[RolloutRecord] = []
        async with (
            running(SystemSpec(pools=pools)) as system,
            connect(system.url) as gym,
            nats.connect(system.url) as bus,
        ):

            async def run() -> None:
                rows = gym.rollouts([ROW], environment="mini_swe_agent")
                records.extend([record async for record in rows])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                for turn, kinds in stops.items():
                    await stored(bus, turn + 1)
                    for pid in [await busy(gym, kind) for kind in kinds]:
                        os.kill(pid, signal.SIGKILL)
    return Played(records[0], scripted.asked)


async def test_a_box_goes_on_with_its_files_when_agent_and_resource_are_killed() -> None:
    twin = await played({})
    disturbed = await played(STOPS)
    for one in (twin, disturbed):
        assert one.record.outcome == Completed()
        assert one.asked == list(range(TURNS + 2)), "each turn is asked once"
    assert disturbed.outputs[TURNS] == twin.outputs[TURNS], "the hash of the workspace"
    assert disturbed.outputs[0] != twin.outputs[0], "the time"
    about = gym_part(disturbed.record)
    assert about["resumed_turns"] > 0
    assert about["rebuilt_sessions"] >= 1
    assert "started_anew" not in about
