"""A whole system on the memory bus, under faults."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from gym_runtime import clock
from gym_runtime.bus.interface import Delivery, Incoming
from gym_runtime.errors import (
    GymError,
)
from gym_testing.memory import Chances, MemoryBroker, MemoryBus
from gym_testing.virtual_clock import run
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


TASKS = 40
STORM = Chances(
    drop=0.05,
    double=0.05,
    delay=0.3,
    cut=0.01,
    freeze=0.01,
    delay_s=(0.0, 3.0),
    lasts_s=(0.5, 20.0),
)


class Simulation:
    """Three agents that work on a queue with the help of two servers, in a storm of faults."""

    def __init__(self, seed: int) -> None:
        self.broker = MemoryBroker(seed=seed, faults=STORM)
        self.trace: list[tuple[float, str, str]] = []
        self.busy: Counter[str] = Counter()
        self.most = 0

    def note(self, who: str, what: str) -> None:
        self.trace.append((anyio.current_time(), who, what))

    async def patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until there is an answer."""
        while True:
            try:
                return await ask()
            except GymError as error:
                self.note("error", type(error).__name__)
                await anyio.sleep(1)

    async def serve(self, bus: MemoryBus, tasks: TaskGroup, ready: anyio.Event) -> None:
        def receive(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, incoming.payload[::-1])

        async with bus.serve("service.reverse", receive, queue="servers"):
            ready.set()
            await anyio.sleep_forever()

    async def work(self, bus: MemoryBus) -> None:
        async def handle(delivery: Delivery) -> None:
            self.busy[bus.name] += 1
            self.most = max(self.most, self.busy[bus.name])
            self.note(bus.name, f"{delivery.payload.decode()}/{delivery.deliveries}")
            try:
                ask = partial(bus.request, "service.reverse", delivery.payload)
                answer = await self.patiently(lambda: ask(deadline_s=clock.monotonic() + 10))
                subject = f"rollout.r.{delivery.payload.decode()}"
                stored = await self.patiently(partial(bus.commit, subject, answer))
                self.note(bus.name, f"{subject} {stored}")
                await delivery.ack()
            finally:
                self.busy[bus.name] -= 1

        pull = partial(bus.pull, "task.>", consumer="agents", slots=4, handle=handle)
        while True:
            with anyio.move_on_after(random.uniform(5, 60)):
                await self.patiently(pull)
            assert self.busy[bus.name] == 0
            self.note(bus.name, "starts anew")

    async def main(self) -> dict[str, bytes]:
        async with AsyncExitStack() as stack:
            buses = {
                name: await stack.enter_async_context(self.broker.connect(name))
                for name in ("client", "agent-1", "agent-2", "agent-3", "server-1", "server-2")
            }
            client = buses["client"]
            async with anyio.create_task_group() as tasks:
                for name in ("server-1", "server-2"):
                    ready = anyio.Event()
                    tasks.start_soon(self.serve, buses[name], tasks, ready)
                    await ready.wait()
                for name in ("agent-1", "agent-2", "agent-3"):
                    tasks.start_soon(self.work, buses[name])
                for number in range(TASKS):
                    await self.patiently(partial(client.enqueue, "task.a", b"%d" % number))
                found: dict[str, bytes] = {}
                async for record in client.records("rollout.>"):
                    assert record.subject not in found
                    found[record.subject] = record.payload
                    if len(found) == TASKS:
                        break
                # Redeliveries of finished tasks come to an end as well.
                while await self.patiently(partial(client.counts, "task.>")):
                    await anyio.sleep(5)
                tasks.cancel_scope.cancel()
        return found


@table("seed", range(8))
def test_every_task_has_exactly_one_result_whatever_happens(seed: int) -> None:
    simulation = Simulation(seed)
    found = run(simulation.main, seed=seed)
    assert found == {f"rollout.r.{number}": str(number)[::-1].encode() for number in range(TASKS)}
    assert simulation.most == 4, "slots were exceeded, or never filled"
    assert {what for _, who, what in simulation.trace if who == "error"}, "the storm was none"


def test_the_same_seed_is_the_same_storm() -> None:
    one, two, other = Simulation(3), Simulation(3), Simulation(4)
    for simulation, seed in ((one, 3), (two, 3), (other, 4)):
        run(simulation.main, seed=seed)
    assert one.trace == two.trace
    assert one.trace != other.trace
