"""What the benchmarks share: the CPU and memory of process trees, the bare loop, tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import anyio
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `stubs`, which every benchmark imports after this

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


def tree(pids: Iterable[int]) -> list[psutil.Process]:
    """Processes and all of their descendants."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            found[member.pid] = member
    return list(found.values())


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """User and system seconds of live processes."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def memory_bytes(process: psutil.Process) -> int:
    """Unique set size: what would be free if this process ended."""
    return process.memory_full_info().uss


def print_table(title: str, header: list[str], rows: list[list[object]]) -> None:
    """A Markdown table, to be copied as it is."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join(" --- " for _ in header) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


async def bare_loop(url: str, rollouts: int, concurrency: int) -> tuple[float, float]:
    """The same HTTP calls and tool in one asyncio script: seconds of wall clock and of CPU."""
    import aiohttp

    base = json.loads(ROW)["responses_create_params"]

    async def ask(session: aiohttp.ClientSession, items: list[object]) -> dict[str, object]:
        async with session.post(f"{url}/responses", json={**base, "model": "stub", "input": items}) as answer:
            return await answer.json()

    async def one(session: aiohttp.ClientSession) -> None:
        items = list(base["input"])
        output = (await ask(session, items))["output"]
        assert isinstance(output, list)
        call = output[0]
        city = json.loads(call["arguments"])["city"]
        weather = json.dumps({"city": city, "weather_description": f"The weather in {city} is cold."})
        items += [*output, {"type": "function_call_output", "call_id": call["call_id"], "output": weather}]
        final = await ask(session, items)
        assert final["output"]

    async def worker(session: aiohttp.ClientSession, todo: Iterator[int]) -> None:
        for _ in todo:
            await one(session)

    todo = iter(range(rollouts))
    started, cpu = time.perf_counter(), time.process_time()
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(concurrency):
            tasks.start_soon(worker, session, todo)
    return time.perf_counter() - started, time.process_time() - cpu


def rows(count: int) -> list[bytes]:
    """Rows of ``example_single_tool_call`` that differ, so that each is a task of its own."""
    return [ROW[:-1] + b', "bench_index": %d}' % index for index in range(count)]


def here() -> Path:
    return Path(__file__).resolve().parent


async def drained(records: AsyncIterator[object]) -> int:
    """Read an async iterator to its end; how many there were."""
    count = 0
    async for _ in records:
        count += 1
    return count
