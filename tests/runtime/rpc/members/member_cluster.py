"""Members on a bus in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from gym_runtime.rpc.watch import Members
from gym_runtime.timing import ROLL_CALL_S
from gym_testing.background import SOON_S, background, settled
from gym_testing.memory import Fate, MemoryBroker, MemoryBus, Passing
from runtime.workers.hosting import announced

SLACK_S = 0.3


KNOWN_S = ROLL_CALL_S + SLACK_S


class Traffic:
    """Counts what passes, by the first token of its subject; loses and delays what a test chooses."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.lose: Callable[[Passing], bool] = lambda passing: False
        self.delay_s: Callable[[Passing], float] = lambda passing: 0.0

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        self.sent[passing.subject.partition(".")[0]] += 1
        return Fate(drop=self.lose(passing), delay_s=self.delay_s(passing))


class Cluster:
    """Followers and workers, each on its own connection."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.traffic = Traffic()
        self.broker = MemoryBroker(faults=self.traffic)
        self._stack = stack

    async def bus(self, name: str) -> MemoryBus:
        return await self._stack.enter_async_context(self.broker.connect(name))

    async def follower(self, name: str) -> Members:
        """An agent worker, as far as others see it."""
        bus = await self.bus(name)
        members = Members(bus, own=name)
        await self._stack.enter_async_context(background(members.follow))
        await self._stack.enter_async_context(announced(bus, "agent", name, ["tool_loop"]))
        return members

    async def worker(self, name: str, kind: str = "model") -> MemoryBus:
        bus = await self.bus(name)
        await self._stack.enter_async_context(announced(bus, kind, name, ["policy"]))
        return bus


async def all_know(
    followers: Sequence[Members], what: Callable[[Members], object], *, within_s: float = SOON_S
) -> None:
    """Return once something holds for the list of every follower."""
    await settled(lambda: all(what(members) for members in followers), within_s=within_s)


def model(worker: str) -> Callable[[Members], bool]:
    """Whether a follower knows a model worker."""
    return lambda members: members.views["model"].knows(worker)


def no_model(worker: str) -> Callable[[Members], bool]:
    return lambda members: not members.views["model"].knows(worker)
