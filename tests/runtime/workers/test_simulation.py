"""Whole systems in virtual time with faults by chance: every rollout ends once, and nothing is left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.bus.contract import QueueDepth
from gym_runtime.bus.memory import Chances, MemoryBroker
from gym_runtime.bus.memory.faults import Kind
from gym_runtime.messages.calls import ModelAnswer, ModelCall
from gym_runtime.messages.outcomes import Cancelled, Completed, RolloutRecord
from gym_runtime.model import CallContext
from gym_runtime.testing.clock import run
from gym_runtime.workers.sessions import GRACE_S, SWEEP_S
from runtime.workers.small_system import Engine, SmallSystem, answer, function_call, rollout_task
from runtime.workers.stage import environment, hosting, row

ROLLOUTS = 40
LIMIT_S = 300.0
SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(10)]


class Tally(Session[Task]):
    """Counts its own calls, and all sessions that are open."""

    open_now: Counter[str]

    async def open(self) -> None:
        self.count = 0
        self.open_now["sessions"] += 1

    @tool
    async def increment(self) -> int:
        await anyio.sleep(0.2)
        self.count += 1
        return self.count

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == 2 and len(reply.function_calls) == 2))

    async def close(self) -> None:
        self.open_now["sessions"] -= 1


class Slow(Engine):
    """An engine that takes its time; its answer depends on the conversation only."""

    async def respond(self, call: ModelCall, context: CallContext) -> ModelAnswer:
        await anyio.sleep(1.0)
        called = sum(b"function_call_output" in bytes(item) for item in call.input)
        return answer(function_call("increment")) if called < 2 else answer("done")


@asynccontextmanager
async def scene(faults: Chances, seed: int) -> AsyncGenerator[tuple[SmallSystem, Counter[str]]]:
    """Two workers of each kind, and how many sessions are open."""
    open_now: Counter[str] = Counter()
    tally = type("CountedTally", (Tally,), {"open_now": open_now})
    loaded = environment(Environment(resource=tally, description=""), "stage")
    broker = MemoryBroker(faults=faults, seed=seed)
    async with broker.connect("client") as bus, hosting() as tasks:
        system = SmallSystem(broker, bus, tasks)
        for number in (1, 2):
            await system.add_resource(loaded, name=f"resource-{number}")
            await system.add_model(Slow(), name=f"model-{number}")
            await system.add_agent(name=f"agent-{number}", slots=20)
        tasks_to_do = [rollout_task(row(), task=task, timeout_s=LIMIT_S) for task in range(ROLLOUTS)]
        await system.enqueue(*tasks_to_do)
        yield system, open_now


async def play(faults: Chances, seed: int, *, kill: bool) -> tuple[list[RolloutRecord], int, QueueDepth]:
    """Rollouts from their start to their end; their records, and what is left."""
    async with scene(faults, seed) as (system, open_now):
        if kill:
            for kind in ("agent", "resource", "model"):
                await anyio.sleep(1.5)
                system.kill(f"{kind}-1")
                if kind == "agent":
                    await system.add_agent(name="agent-3")
        records = await system.records(ROLLOUTS)
        # Longer than the deadline of any session and the sweep that follows it.
        await anyio.sleep(LIMIT_S + GRACE_S + 2 * SWEEP_S)
        counts = await system.bus.counts("rollout.run.>")
        assert set(counts.values()) == {1}
        return records, open_now["sessions"], await system.bus.depth("agent-tool_loop")


KINDS: frozenset[Kind] = frozenset({"signal", "request", "answer", "delivery", "ack", "beat"})
LOSABLE: frozenset[Kind] = frozenset({"signal", "delivery", "ack", "beat"})
CHANCES = {
    "nothing": Chances(),
    "lost": Chances(drop=0.1, kinds=LOSABLE),
    "late": Chances(delay=0.3, kinds=KINDS),
    "twice": Chances(double=0.3, kinds=KINDS),
    "cut": Chances(cut=0.02, kinds=KINDS, lasts_s=(0.1, 3.0)),
    "frozen": Chances(freeze=0.01, kinds=KINDS, lasts_s=(0.5, 12.0)),
    "everything": Chances(delay=0.1, double=0.1, cut=0.01, freeze=0.005, kinds=KINDS),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("chances", CHANCES)
def test_whatever_befalls_messages_every_rollout_ends_once(chances: str, seed: int) -> None:
    async def main() -> None:
        records, sessions, depth = await play(CHANCES[chances], seed, kill=False)
        assert Counter(type(record.outcome) for record in records) == {Completed: ROLLOUTS}
        assert {record.reward for record in records} == {1.0}
        assert sessions == 0
        assert depth == QueueDepth(waiting=0, in_flight=0)

    run(main, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("chances", ["nothing", "everything"])
def test_whatever_befalls_workers_every_rollout_ends_once(chances: str, seed: int) -> None:
    async def main() -> None:
        records, _, depth = await play(CHANCES[chances], seed, kill=True)
        assert Counter(type(record.outcome) for record in records) == {Completed: ROLLOUTS}
        assert {record.reward for record in records} == {1.0}
        assert depth == QueueDepth(waiting=0, in_flight=0)

    run(main, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_whenever_a_run_is_cancelled_nothing_is_left_a_moment_later(seed: int) -> None:
    async def main() -> None:
        # What a worker sends another one arrives in order; what comes back may come at any time.
        late = Chances(delay=0.5, delay_s=(0.0, 0.05), kinds=frozenset({"answer", "delivery", "ack"}))
        async with scene(late, seed) as (system, open_now):
            await anyio.sleep(random.uniform(0, 4.0))
            await system.bus.forget("task.*.*.run")
            await system.bus.publish("cancel.run", b"")
            await anyio.sleep(3.0)
            assert open_now["sessions"] == 0
            assert await system.bus.depth("agent-tool_loop") == QueueDepth(waiting=0, in_flight=0)
            records = await system.records(len(await system.bus.counts("rollout.run.>")))
            assert {type(record.outcome) for record in records} <= {Completed, Cancelled}

    run(main, seed=seed)
