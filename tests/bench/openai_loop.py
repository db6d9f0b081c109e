"""What a rollout costs in a loop with the `openai` package: a semaphore, the tool in the same process.

    python tests/bench/openai_loop.py

Beside it stands the bare loop of `gym-runtime bench system`, with the same engine and rows, in turn.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

import uvloop
from gym_testing.bench import instant_engine, loop
from measure import print_table
from openai import AsyncOpenAI

ROLLOUTS, IN_FLIGHT, ROUNDS = 1000, 256, 5


async def one(client: AsyncOpenAI, places: asyncio.Semaphore, row: dict[str, Any]) -> None:
    items: list[Any] = list(row["input"])
    async with places:
        while True:
            answer = await client.responses.create(model="bench", input=items, tools=row["tools"])
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return
            for call in calls:
                weather = f"The weather in {json.loads(call.arguments)['city']} is cold."
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": weather})


async def run(url: str) -> float:
    """Seconds of this process's CPU."""
    rows = [json.loads(row)["responses_create_params"] for row in loop.rows(ROLLOUTS)]
    places = asyncio.Semaphore(IN_FLIGHT)
    began_s = time.process_time()
    async with AsyncOpenAI(base_url=url, api_key="any") as client, asyncio.TaskGroup() as tasks:
        for row in rows:
            tasks.create_task(one(client, places, row))
    return time.process_time() - began_s


async def main() -> None:
    bare: list[float] = []
    openai: list[float] = []
    with instant_engine.running() as (url, _):
        await run(url)  # warm
        for _ in range(ROUNDS):
            bare.append((await loop.run(url, ROLLOUTS, IN_FLIGHT))[1] / ROLLOUTS)
            openai.append(await run(url) / ROLLOUTS)
    times = statistics.median(one / other for one, other in zip(openai, bare, strict=True))
    print_table(
        f"CPU of a rollout, {IN_FLIGHT} in flight, the median of {ROUNDS} rounds",
        ["bare loop", "`openai` loop", "times the bare loop"],
        [[*(f"{1000 * statistics.median(one):.2f} ms" for one in (bare, openai)), f"{times:.0f}"]],
    )


uvloop.run(main())
