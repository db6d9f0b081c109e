"""CPU per turn and per megabyte of rollouts with long contexts, by process.

    python tests/bench/contexts.py               # all sizes and turns, with token ids and without
    python tests/bench/contexts.py --kb 256 --turns 2,10 --tokens off --repeats 5

Every row brings its whole context; each turn is one call to the stub engine and one step of the environment.
"MB" are the megabytes that the engine is sent for one rollout, context times turns; "ms per MB" is what they
cost above the smallest context with as many turns.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

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
FIXED_KB = 4
BYTES_AT_ONCE = 64 * 1024 * 1024
"""Of all rows in flight together."""

Spent = dict[str, float]


def row(size_kb: int, turns: int, number: int) -> bytes:
    words = random.Random(number)
    text = " ".join(f"{words.getrandbits(28):07x}" for _ in range(size_kb * 128))
    message = {"role": "user", "content": text}
    return msgspec.json.encode({"responses_create_params": {"input": [message]}, "turns": turns})


class System:
    """A running system, and which of its processes is what."""

    def __init__(self, gym: Client, kinds: dict[int, str]) -> None:
        self.gym = gym
        self.parts: dict[str, list[psutil.Process]] = defaultdict(list)
        for process in tree([os.getpid()]):
            if "stub_engine" not in " ".join(process.cmdline()):
                broker = "nats-server" in process.name()
                self.parts["broker" if broker else kinds.get(process.pid, "client")].append(process)

    async def run(self, size_kb: int, turns: int, tokens: bool, count: int) -> Spent:
        """CPU milliseconds per rollout by process; ``memory`` is the agent's growth, KB for each."""
        rows = [row(size_kb, turns, number) for number in range(count)]
        in_flight = max(2, min(64, count, BYTES_AT_ONCE // (size_kb * 1024)))
        before = {name: cpu_s(part) for name, part in self.parts.items()}
        agent, completed = self.parts["agent"][0], 0
        idle = peak = memory_bytes(agent)
        async for record in self.gym.rollouts(
            rows, environment="steps", in_flight=in_flight, return_tokens=tokens
        ):
            completed += isinstance(record.outcome, Completed)
            peak = max(peak, memory_bytes(agent)) if completed % 8 == 0 else peak
        assert completed == count, f"{count - completed} of {count} failed"
        spent = {name: (cpu_s(part) - before[name]) / count * 1e3 for name, part in self.parts.items()}
        return spent | {"all": sum(spent.values()), "memory": (peak - idle) / 1024 / in_flight}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kb", default="4,16,64,256,2048")
    parser.add_argument("--turns", default="2,10,50")
    parser.add_argument("--tokens", default="off,on")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--rollouts", type=int, default=200, help="of the smallest contexts; fewer of larger ones"
    )
    options = parser.parse_args()
    sizes, turns = ([int(part) for part in text.split(",")] for text in (options.kb, options.turns))
    with tempfile.TemporaryDirectory() as folder, stub_engine.running("--api", "chat") as engine:
        (Path(folder) / "steps.py").write_text(ENVIRONMENT)
        os.chdir(folder)
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,), api="chat")
        async with connect(model=model, environments=["steps"], concurrency=64) as gym:
            system = System(gym, {worker.pid: worker.kind for worker in await gym.workers()})
            await system.run(4, 2, tokens=True, count=200)
            table: list[list[object]] = []
            for tokens in options.tokens.split(","):
                for number in turns:
                    fixed_ms = 0.0
                    for size_kb in sizes:
                        moved_mb = size_kb * number / 1024
                        count = max(4, min(options.rollouts, int(100 / moved_mb)))
                        runs = [
                            await system.run(size_kb, number, tokens == "on", count)
                            for _ in range(options.repeats)
                        ]
                        spent = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                        fixed_ms = spent["all"] if size_kb == sizes[0] else fixed_ms
                        more = (spent["all"] - fixed_ms) / (moved_mb - sizes[0] * number / 1024 or 1)
                        table.append(
                            [
                                f"{size_kb} KB",
                                number,
                                tokens,
                                f"{spent['all']:.2f}",
                                f"{spent['all'] / number:.2f}",
                                f"{more:.1f}" if size_kb != sizes[0] else "",
                                *(
                                    f"{spent[name]:.2f}"
                                    for name in ("agent", "model", "resource", "broker", "client")
                                ),
                                f"{spent['memory']:.0f}",
                            ]
                        )
                        print(*table[-1], file=sys.stderr)
            print_table(
                "Long contexts",
                [
                    "context",
                    "turns",
                    "token ids",
                    "CPU ms per rollout",
                    "per turn",
                    "ms per MB",
                    "agent",
                    "model",
                    "resource",
                    "broker",
                    "client",
                    "KB per rollout in flight, agent",
                ],
                table,
            )


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
