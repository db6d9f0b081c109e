"""What a rollout costs at least: the same HTTP calls and tool in one asyncio script.

No broker, no verification by others, no files, and nothing survives it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import anyio
from gym_runtime.environment import catalogue, examples

ENVIRONMENT = "example_single_tool_call"


def rows(count: int) -> list[bytes]:
    """Rows that differ, so that each is another task."""
    row = {"responses_create_params": _params()}
    return [json.dumps({**row, "bench_index": index}).encode() for index in range(count)]


def _params() -> dict[str, Any]:
    return examples.read(catalogue.environment(ENVIRONMENT))[0].fields["responses_create_params"]


async def run(url: str, rollouts: int, concurrency: int) -> tuple[float, float]:
    """Make rollouts with the engine at ``url``: seconds of wall clock, and of this process's CPU."""
    base = _params()

    async def ask(session: aiohttp.ClientSession, items: list[Any]) -> list[dict[str, Any]]:
        async with session.post(f"{url}/responses", json={**base, "model": "stub", "input": items}) as answer:
            return (await answer.json())["output"]

    async def one(session: aiohttp.ClientSession) -> None:
        items = list(base["input"])
        while (call := (output := await ask(session, items))[0])["type"] == "function_call":
            city = json.loads(call["arguments"])["city"]
            weather = json.dumps({"city": city, "weather_description": f"The weather in {city} is cold."})
            answer = {"type": "function_call_output", "call_id": call["call_id"], "output": weather}
            items += [*output, answer]

    async def worker(session: aiohttp.ClientSession, todo: Iterator[int]) -> None:
        for _ in todo:
            await one(session)

    todo = iter(range(rollouts))
    started_s, cpu_s = time.perf_counter(), time.process_time()
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(concurrency):
            tasks.start_soon(worker, session, todo)
    return time.perf_counter() - started_s, time.process_time() - cpu_s
