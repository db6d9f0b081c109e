"""CPU per rollout with more workers of each kind, and with more environments in one run.

    python tests/bench/rollouts.py --case several

All systems are alive at once, and 256 rollouts are in flight in each in turn; so they share the machine's
good and bad moments. "Times one worker" is the median over the rounds.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import gym_resources
from gym_runtime import connect
from gym_runtime.bench import instant_engine, system_bench
from gym_runtime.bench.loop import rows
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_runtime.processes.tree import members
from gym_runtime.workers.adapter import ModelSettings

TITLE = "Several workers of each kind, many environments: CPU µs per rollout, engine 0 ms, 256 in flight"
KINDS = ("agent", "broker, supervisor", "client", "model", "resource")
HEADER = ["system", "all", "times one worker", *KINDS]
SOURCE = Path(gym_resources.__file__).with_name("example_single_tool_call.py")
ONE, MANY = "1 worker", "1 worker, 20 environments"
Parts = dict[str, list[int]]


async def measure(count: int, rounds: int) -> list[list[object]]:
    """Rows of the table: ``count`` rollouts in each round."""
    spent: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, instant_engine.running() as (url, _):
        files = _environments(folder, 20)
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with AsyncExitStack() as stack:
            known = {os.getpid(), *members(os.getpid())}
            running: dict[str, tuple[Client, Parts, list[str]]] = {}
            for title, workers in ((ONE, 1), ("2 workers", 2), ("4 workers", 4), (MANY, 1)):
                used = files if title == MANY else files[:1]
                gym = await stack.enter_async_context(
                    connect(model=model, environments=used, workers=workers, concurrency=256)
                )
                own = {*members(os.getpid())} - known
                known |= own
                running[title] = gym, await _parts(gym, own), [Path(file).stem for file in used]
            for number in range(rounds + 1):
                for title, (gym, parts, names) in list(running.items())[:: 1 if number % 2 else -1]:
                    found = await _spent(gym, parts, names, count)
                    if number:  # the first round warms up
                        spent[title].append(found)
    return [_row(title, found, spent[ONE]) for title, found in spent.items()]


def _environments(folder: str, count: int) -> list[str]:
    """Copies of one environment under names of their own."""
    files = [Path(folder) / f"weather_{number:02}.py" for number in range(count)]
    for file in files:
        file.write_text(SOURCE.read_text())
    return [str(file) for file in files]


async def _parts(gym: Client, pids: set[int]) -> Parts:
    kinds = {worker.pid: worker.kind for worker in await gym.workers()}
    parts: Parts = {kind: [] for kind in KINDS} | {"client": [os.getpid()]}
    for pid in pids:
        parts[kinds.get(pid, "broker, supervisor")].append(pid)
    return parts


async def _spent(gym: Client, parts: Parts, names: Sequence[str], count: int) -> dict[str, float]:
    tasks = [
        b'%b, "agent_ref": {"name": "%b"}}' % (row[:-1], names[index % len(names)].encode())
        for index, row in enumerate(rows(count))
    ]
    before = {kind: system_bench.cpu_us(pids) for kind, pids in parts.items()}
    done = [record.outcome async for record in gym.rollouts(tasks, in_flight=512)]
    assert len(done) == count
    assert all(isinstance(outcome, Completed) for outcome in done), done[0]
    return {kind: (system_bench.cpu_us(pids) - before[kind]) / count for kind, pids in parts.items()}


def _row(title: str, found: list[dict[str, float]], base: list[dict[str, float]]) -> list[object]:
    pairs = zip(found, base, strict=True)
    times = statistics.median(sum(one.values()) / sum(other.values()) for one, other in pairs)
    middle = [statistics.median(one[kind] for one in found) for kind in KINDS]
    return [title, f"{sum(middle):.0f}", f"{times:.2f}", *(f"{us:.0f}" for us in middle)]
