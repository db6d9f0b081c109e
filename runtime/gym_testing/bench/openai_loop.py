"""What a rollout costs in the loop that people write with the `openai` package."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio

from gym_testing.bench import loop


async def run(url: str, rollouts: int, concurrency: int) -> float:
    """Make rollouts under a semaphore, with the tool in this process: seconds of this process's CPU."""
    from openai import AsyncOpenAI

    rows: list[dict[str, Any]] = [json.loads(row)["responses_create_params"] for row in loop.rows(rollouts)]
    places = anyio.Semaphore(concurrency)

    async def one(client: AsyncOpenAI, row: dict[str, Any]) -> None:
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

    async with AsyncOpenAI(base_url=url, api_key="any") as client:
        began_s = time.process_time()
        async with anyio.create_task_group() as tasks:
            for row in rows:
                tasks.start_soon(one, client, row)
        return time.process_time() - began_s
