"""A system under a supervisor, and its processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo, make_pools
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings
from running import runs
from time_limits import busy

NAME = "example_session_state_mgmt"


ROW = {
    "responses_create_params": {
        "input": "count",
        "tools": [
            {
                "type": "function",
                "name": "increment_counter",
                "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
            }
        ],
    },
    "initial_count": 3,
    "expected_count": 4,
}


def model(latency_s: float = 0.0) -> ModelSettings:
    return ModelSettings(provider="scripted", name="tool-then-message", options={"latency_s": latency_s})


def spec(*, latency_s: float = 0.0, workers: int = 1, **more: Any) -> SystemSpec:
    pools = make_pools([NAME], model(latency_s), workers=workers, concurrency=16)
    return SystemSpec(pools=pools, **more)


def rows(count: int) -> list[dict[str, Any]]:
    return [{**ROW, "number": number} for number in range(count)]


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def pid_of(system: System, kind: str) -> int:
    return next(event.pid for event in system.workers.values() if event.kind == kind)


def processes_of(system: System) -> set[int]:
    return {system.pid, *(child.pid for child in psutil.Process(system.pid).children(recursive=True))}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if runs(pid)}


async def gone(pids: set[int], within_s: float) -> None:
    """Return once all of these processes have ended; a busy machine takes longer."""
    with anyio.fail_after(within_s * busy()):
        while alive(pids):
            await anyio.sleep(0.02)


async def works(system: System, count: int = 5) -> None:
    async with connect(nats=system.url) as gym:
        records = [record async for record in gym.rollouts(rows(count), environment=NAME)]
    assert [record.outcome for record in records] == [Completed()] * count


@asynccontextmanager
async def in_the_middle(broker: Broker, latency_s: float) -> AsyncGenerator[tuple[System, Client]]:
    """A system on another's broker in which 16 of 40 rollouts are in flight."""
    system = launch(spec(nats=(broker.url,), latency_s=latency_s))
    try:
        await system.until("all_ready")
        async with connect(nats=broker.url) as gym:
            lines = [msgspec.json.encode(row) for row in rows(40)]
            await gym.driver.open_run(RunInfo(run="run", total=40))
            await gym.driver.publish(expand(lines, run="run", environment=NAME))
            with anyio.fail_after(15 * busy()):
                while (await gym.driver.bus.depth("agent-tool_loop")).in_flight < 16:
                    await anyio.sleep(0.02)
            yield system, gym
    finally:
        system.kill()


async def draining(gym: Client) -> None:
    """Return once a worker says that it drains."""
    with anyio.fail_after(15 * busy()):
        while all(not worker.draining for worker in await gym.workers()):
            await anyio.sleep(0.05)
