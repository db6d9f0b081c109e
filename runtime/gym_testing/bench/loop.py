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

ROW = json.dumps(
    {
        "responses_create_params": {
            "input": [
                {
                    "role": "developer",
                    "content": "You are a helpful personal assistant that aims to be helpful and reduce any "
                    "pain points the user has.",
                },
                {"role": "user", "content": "what's it like in sf?"},
            ],
            "tools": [
                {
                    "type": "function",
                    "name": "get_weather",
                    "description": "",
                    "parameters": {
                        "type": "object",
                        "properties": {"city": {"type": "string", "description": ""}},
                        "required": ["city"],
                        "additionalProperties": False,
                    },
                    "strict": True,
                }
            ],
        }
    }
).encode()
"""A row of ``example_single_tool_call``."""


def rows(count: int) -> list[bytes]:
    """Rows that differ, so that each is another task."""
    return [ROW[:-1] + b', "bench_index": %d}' % index for index in range(count)]


async def run(url: str, rollouts: int, concurrency: int) -> tuple[float, float]:
    """Make rollouts with the engine at ``url``: seconds of wall clock, and of this process's CPU."""
    base = json.loads(ROW)["responses_create_params"]

    async def ask(session: aiohttp.ClientSession, items: list[Any]) -> list[dict[str, Any]]:
        async with session.post(f"{url}/responses", json={**base, "model": "stub", "input": items}) as answer:
            return (await answer.json())["output"]

    async def one(session: aiohttp.ClientSession) -> None:
        items = list(base["input"])
        output = await ask(session, items)
        call = output[0]
        city = json.loads(call["arguments"])["city"]
        weather = json.dumps({"city": city, "weather_description": f"The weather in {city} is cold."})
        items += [*output, {"type": "function_call_output", "call_id": call["call_id"], "output": weather}]
        assert await ask(session, items)

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
