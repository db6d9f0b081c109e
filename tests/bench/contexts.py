"""CPU per turn and per megabyte of rollouts with long contexts, by process; memory per rollout in flight.

    python tests/bench/contexts.py               # all contexts and turns, with token ids and without
    python tests/bench/contexts.py --kb 256 --turns 2,10 --tokens off --image-kb "" --repeats 5

Every row brings its whole context, a text or an image (as a data URL); each turn is one call to the stub
engine and one step of the environment. What is measured is everything but the stub engine.

"MB asked" are the bytes of the requests that the engine was sent for one rollout and of its answers, as the
stub engine counts them: context times turns, and with token ids their JSON, too. "MB moved" are all bytes
that passed through this machine's sockets: between client, broker, workers and engine (other programs must be
quiet). The two last columns before the processes are the CPU milliseconds that a MB of these costs above the
smallest context with as many turns, which stands for the fixed part.

"Memory" is how much the agent worker of a new system grows for each rollout in flight, and how many times the
rollout's size that is: its row, and four bytes for each token id.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
from gym_runtime import connect
from gym_runtime.client import Client
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from measure import cpu_s, memory_bytes, print_table, tree
from stubs import stub_engine

ENVIRONMENT = '''"""As many steps as the row says."""
from gym_runtime import Environment, Episode, Reply, Step, Task

class StepsTask(Task):
    turns: int

class Steps(Episode[StepsTask]):
    async def reset(self) -> str:
        self.left = self.task.turns
        return "Begin."

    async def step(self, reply: Reply) -> Step:
        self.left -= 1
        return Step(reward=1.0, terminated=not self.left, observation="" if not self.left else "Go on.")

environment = Environment(resource=Steps, description="Steps.", max_turns=100)
'''
BYTES_AT_ONCE = 64 * 1024 * 1024
"""Of all rows in flight together."""
ASKED_MB = 200
"""About so much is asked in one measurement, by at least four rollouts."""
BYTES_PER_TOKEN = 4
"""Of the stub engine's tokens, and of a token's id."""
MEMORY_TURNS = 10
LARGE_KB = 256
"""Of smaller contexts the memory is mostly that of Python objects."""
PROCESSES = ("agent", "model", "resource", "broker", "client")
HEADER = [
    *("context", "turns", "token ids", "MB asked", "MB moved", "MB of rows", "CPU ms", "per turn"),
    *("per MB asked", "per MB moved", "and with rows"),
    *PROCESSES,
]

Spent = dict[str, float]


@dataclass(frozen=True)
class Case:
    """Rollouts of one kind."""

    size_kb: int
    image: bool
    turns: int
    tokens: bool

    def row(self, number: int) -> bytes:
        chance = random.Random(number)
        if self.image:
            url = "data:image/png;base64," + base64.b64encode(chance.randbytes(self.size_kb * 768)).decode()
            content: Any = [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": url, "detail": "auto"},
            ]
        else:
            content = " ".join(f"{chance.getrandbits(28):07x}" for _ in range(self.size_kb * 128))
        message = {"role": "user", "content": content}
        return msgspec.json.encode({"responses_create_params": {"input": [message]}, "turns": self.turns})

    def in_flight(self, count: int) -> int:
        return max(2, min(64, count, BYTES_AT_ONCE // (self.size_kb * 1024)))

    @property
    def name(self) -> str:
        return f"{self.size_kb} KB" + (" image" if self.image else "")

    @property
    def rollout_kb(self) -> float:
        """The size of a rollout: its row, and its token ids."""
        return self.size_kb * (2 if self.tokens else 1)


class System:
    """A running system, and which of its processes is what."""

    def __init__(self, gym: Client, kinds: dict[int, str], engine: stub_engine.StubEngine) -> None:
        self._gym = gym
        self._engine = engine
        self._parts: dict[str, list[psutil.Process]] = defaultdict(list)
        for process in tree([os.getpid()]):
            if "stub_engine" not in " ".join(process.cmdline()):
                broker = "nats-server" in process.name()
                self._parts["broker" if broker else kinds.get(process.pid, "client")].append(process)

    async def run(self, case: Case, count: int) -> Spent:
        """CPU milliseconds per rollout by process, and MB moved."""
        rows = [case.row(number) for number in range(count)]
        in_flight = case.in_flight(count)
        self._engine.stats(reset=True)
        before = {name: cpu_s(part) for name, part in self._parts.items()}
        moved_before = moved_bytes()
        completed = written_bytes = 0
        async for record in self._gym.rollouts(
            rows, environment="steps", in_flight=in_flight, return_tokens=case.tokens
        ):
            completed += isinstance(record.outcome, Completed)
            written_bytes += len(memoryview(record.row))
        assert completed == count, f"{count - completed} of {count} failed"
        spent = {name: (cpu_s(part) - before[name]) / count * 1e3 for name, part in self._parts.items()}
        stats = self._engine.stats()
        moved_mb = (moved_bytes() - moved_before) / count / 2**20
        rows_mb = written_bytes / count / 2**20
        return spent | {
            "all": sum(spent.values()),
            "asked": (stats.bytes_in + stats.bytes_out) / count / 2**20,
            "moved": moved_mb,
            "rows": rows_mb,
            "with rows": moved_mb + rows_mb,
        }

    async def memory_kb(self, case: Case) -> float:
        """The growth of the agent for each rollout in flight, at its peak."""
        agent = self._parts["agent"][0]
        idle = peak = memory_bytes(agent)

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, memory_bytes(agent))
                await anyio.sleep(0.02)

        count = 3 * case.in_flight(64)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await self.run(case, count)
            tasks.cancel_scope.cancel()
        return (peak - idle) / 1024 / case.in_flight(count)

    async def measure(self, case: Case, most: int, repeats: int) -> Spent:
        """The medians of several runs."""
        asked_mb = case.size_kb * case.turns * (2.7 if case.tokens else 1) / 1024
        count = max(4, min(most, int(ASKED_MB / asked_mb)))
        runs = [await self.run(case, count) for _ in range(repeats)]
        return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def moved_bytes() -> int:
    """All bytes that have passed through sockets of this machine since it started."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def line(case: Case, spent: Spent, fixed: Spent | None) -> list[object]:
    """One row of the table; ``fixed`` is what the smallest context takes, None where this is it."""
    extra = spent["all"] - fixed["all"] if fixed else 0.0
    of_what = ("asked", "moved", "with rows")
    per_mb = [f"{extra / (spent[of] - fixed[of]):.1f}" if fixed else "" for of in of_what]
    return [
        case.name,
        case.turns,
        "on" if case.tokens else "off",
        *(f"{spent[of]:.2f}" for of in ("asked", "moved", "rows")),
        f"{spent['all']:.1f}",
        f"{spent['all'] / case.turns:.2f}",
        *per_mb,
        *(f"{spent[name]:.1f}" for name in PROCESSES),
    ]


@asynccontextmanager
async def started(engine: stub_engine.StubEngine) -> AsyncGenerator[System]:
    """A new system that has made its first rollouts."""
    model = ModelSettings(provider="openai", name="stub", urls=(engine.url,), api="chat")
    async with connect(model=model, environments=["steps"], concurrency=64) as gym:
        system = System(gym, {worker.pid: worker.kind for worker in await gym.workers()}, engine)
        await system.run(Case(4, image=False, turns=2, tokens=True), 200)
        yield system


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kb", default="4,16,64,256,2048", help="texts; the first stands for the fixed part")
    parser.add_argument("--image-kb", default="1024", help="images, as they stand in the row")
    parser.add_argument("--turns", default="2,10,50")
    parser.add_argument("--tokens", default="off,on")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--rollouts", type=int, default=200, help="of the smallest contexts; fewer of larger ones"
    )
    options = parser.parse_args()
    texts, images, turns = (
        [int(part) for part in given.split(",") if part]
        for given in (options.kb, options.image_kb, options.turns)
    )
    contexts = [(size_kb, False) for size_kb in texts] + [(size_kb, True) for size_kb in images]
    with tempfile.TemporaryDirectory() as folder, stub_engine.running("--api", "chat") as engine:
        (Path(folder) / "steps.py").write_text(ENVIRONMENT)
        os.chdir(folder)
        table: list[list[object]] = []
        async with started(engine) as system:
            for tokens in options.tokens.split(","):
                for number in turns:
                    fixed: Spent | None = None
                    for size_kb, image in contexts:
                        case = Case(size_kb, image, number, tokens == "on")
                        spent = await system.measure(case, options.rollouts, options.repeats)
                        table.append(line(case, spent, fixed))
                        fixed = fixed or spent
                        print(*table[-1], file=sys.stderr)
        print_table("Long contexts", HEADER, table)
        table = []
        for tokens in options.tokens.split(","):
            for size_kb, image in contexts:
                case = Case(size_kb, image, MEMORY_TURNS, tokens == "on")
                if size_kb >= LARGE_KB:
                    async with started(engine) as system:
                        grown_kb = await system.memory_kb(case)
                    table.append([case.name, tokens, f"{grown_kb:.0f}", f"{grown_kb / case.rollout_kb:.1f}"])
        print_table(
            f"Memory, {MEMORY_TURNS} turns",
            ["context", "token ids", "KB per rollout in flight", "times its size"],
            table,
        )


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
