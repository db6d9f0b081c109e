"""CPU per rollout with more workers of each kind, and with more environments in one run.

    python tests/bench/rollouts.py --case several

All systems are alive at once, and make rollouts in turn; so they share the machine's good and bad moments.
"Times one worker" is the median over the rounds. In two tables the engine answers at once, so that everything
is busy all the time, with few and with many rollouts in flight; in the third one it takes 200 ms.

Processes that share cores take each other's caches away, whatever they do. To tell this from what several
workers cost by themselves, systems of one worker of each kind that know nothing of each other make the same
rollouts at the same time, each its part.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import gym_resources
from gym_runtime import connect
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from gym_sandbox.processes.tree import members
from gym_testing.bench import instant_engine, system_bench
from gym_testing.bench.loop import rows

KINDS = ("agent", "broker, supervisor", "client", "model", "resource")
HEADER = ["system", "all", "times one worker", *KINDS]
SOURCE = Path(gym_resources.__file__).with_name("example_single_tool_call.py")
ONE, MANY = "1 worker", "1 worker, 20 environments"
Parts = dict[str, list[int]]


@dataclass(frozen=True)
class Load:
    """What all systems have to do."""

    engine_s: float
    in_flight: int
    rollouts: int

    @property
    def title(self) -> str:
        what = "Several workers of each kind, many environments: CPU µs per rollout"
        return f"{what}, engine {self.engine_s * 1e3:.0f} ms, {self.in_flight:,} in flight"


LOADS = (Load(0.0, 256, 6000), Load(0.0, 1024, 8192), Load(0.2, 2048, 8192))


@dataclass(frozen=True)
class Systems:
    """One system or several, which make their parts of the rollouts at the same time."""

    clients: list[Client]
    parts: Parts
    names: list[str]


async def measure(load: Load, rounds: int) -> list[list[object]]:
    """Rows of the table."""
    spent: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, instant_engine.running(load.engine_s) as (url, _):
        files = _environments(folder, 20)
        model = ModelSettings(provider="openai", name="bench", urls=(url,), api="responses")
        async with AsyncExitStack() as stack:
            known = {os.getpid(), *members(os.getpid())}
            running: dict[str, Systems] = {}
            for title, workers, systems in (
                (ONE, 1, 1),
                ("2 workers", 2, 1),
                ("4 workers", 4, 1),
                ("2 systems of 1 worker", 1, 2),
                ("4 systems of 1 worker", 1, 4),
                (MANY, 1, 1),
            ):
                used = files if title == MANY else files[:1]
                clients = [
                    await stack.enter_async_context(
                        connect(
                            model=model,
                            environments=used,
                            workers=workers,
                            concurrency=load.in_flight // systems,
                        )
                    )
                    for _ in range(systems)
                ]
                own = {*members(os.getpid())} - known
                known |= own
                names = [Path(file).stem for file in used]
                running[title] = Systems(clients, await _parts(clients, own), names)
            for number in range(rounds + 1):
                for title, systems in list(running.items())[:: 1 if number % 2 else -1]:
                    found = await _spent(systems, load)
                    if number:  # the first round warms up
                        spent[title].append(found)
    return [_row(title, found, spent[ONE]) for title, found in spent.items()]


def _environments(folder: str, count: int) -> list[str]:
    """Copies of one environment under names of their own."""
    files = [Path(folder) / f"weather_{number:02}.py" for number in range(count)]
    for file in files:
        file.write_text(SOURCE.read_text())
    return [str(file) for file in files]


async def _parts(clients: Sequence[Client], pids: set[int]) -> Parts:
    kinds = {worker.pid: worker.kind for client in clients for worker in await client.workers()}
    parts: Parts = {kind: [] for kind in KINDS} | {"client": [os.getpid()]}
    for pid in pids:
        parts[kinds.get(pid, "broker, supervisor")].append(pid)
    return parts


async def _spent(systems: Systems, load: Load) -> dict[str, float]:
    names, each = systems.names, load.rollouts // len(systems.clients)
    tasks = [
        b'%b, "agent_ref": {"name": "%b"}}' % (row[:-1], names[index % len(names)].encode())
        for index, row in enumerate(rows(each))
    ]
    before = {kind: system_bench.cpu_us(pids) for kind, pids in systems.parts.items()}

    async def run(client: Client) -> None:
        made = client.rollouts(tasks, in_flight=load.in_flight // len(systems.clients))
        done = [record.outcome async for record in made]
        assert len(done) == each
        assert all(isinstance(outcome, Completed) for outcome in done), done[0]

    async with anyio.create_task_group() as group:
        for client in systems.clients:
            group.start_soon(run, client)
    made = each * len(systems.clients)
    return {kind: (system_bench.cpu_us(pids) - before[kind]) / made for kind, pids in systems.parts.items()}


def _row(title: str, found: list[dict[str, float]], base: list[dict[str, float]]) -> list[object]:
    pairs = zip(found, base, strict=True)
    times = statistics.median(sum(one.values()) / sum(other.values()) for one, other in pairs)
    middle = [statistics.median(one[kind] for one in found) for kind in KINDS]
    return [title, f"{sum(middle):.0f}", f"{times:.2f}", *(f"{us:.0f}" for us in middle)]
