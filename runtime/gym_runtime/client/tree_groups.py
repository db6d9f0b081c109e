"""Groups that are trees: each rollout of a row is forked at some of its turns, and its forks may be, too.

The forks of a group are rollouts of a second run, which stays open and takes them one by one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from numbers import Integral
from typing import cast

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from gym_runtime.client.standing_run import StandingRun
from gym_runtime.client.streaming import ResultStream, background
from gym_runtime.errors import UsageError, require_at_least
from gym_runtime.files.forks import forked
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.rollout.groups import Group


@dataclass(frozen=True, kw_only=True)
class TreePlan:
    """At which turns rollouts are forked, and how often.

    Attributes:
        at: after which of its turns a rollout is forked, from 1 on; or what says so of a record, called in a
            thread. Turns that it does not have, its last one, and those that it shares with the rollout that
            it forks are left out. Few turns with many forks estimate their values better than many with few.
        times: how many rollouts fork it at each of these turns.
        depth: 1 forks the rollouts of the row, 2 their forks as well, and so on.
    """

    at: Sequence[int] | Callable[[RolloutRecord], Sequence[int]] = (1,)
    times: int = 4
    depth: int = 1

    def __post_init__(self) -> None:
        require_at_least(1, times=self.times, depth=self.depth)
        if isinstance(cast("object", self.at), Integral | str):
            raise UsageError(f"at is {self.at}; it must be a list of turns: [{self.at}]")

    def rows(self, record: RolloutRecord, shared: int = 0) -> Iterator[tuple[bytes, int]]:
        """The rows of a rollout's forks, each with the number of shared turns.

        Args:
            shared: how many turns it shares with the rollout that it forks.

        Raises:
            UsageError: its transcript does not tell its turns apart.
        """
        if record.reward is None:
            return
        for turn in dict.fromkeys(self.at(record) if callable(self.at) else self.at):
            if max(shared, 0) < turn < record.turns:
                yield from [(forked(record, turn), turn)] * self.times


async def grown(
    groups: AsyncGenerator[Group],
    plan: TreePlan,
    open_run: Callable[[], AbstractAsyncContextManager[StandingRun]],
    tasks: TaskGroup,
    *,
    in_flight: int,
    ordered: bool,
    masked: bool,
) -> AsyncGenerator[Group]:
    """The groups with the forks of their rollouts, each as soon as it is complete.

    Args:
        open_run: the run of the forks.
        tasks: outlives the reader of the groups.
        in_flight: so many forks grow at once, and so many trees are not yet yielded.
        ordered: the groups stay in their order.
        masked: a fork that failed for good stays in its group; otherwise it is only among its failures.

    Raises:
        UsageError: a rollout cannot be forked.
    """
    stream, places = ResultStream[Group](), anyio.Semaphore(in_flight)
    trees, sending = anyio.Semaphore(in_flight), anyio.Lock()

    async def work() -> None:
        async with open_run() as run, aclosing(groups), background(cancel=False) as growing:
            before: anyio.Event | None = None
            async for group in groups:
                await trees.acquire()
                sent = anyio.Event()
                growing.start_soon(grow, run, group, before if ordered else None, sent)
                before = sent

    async def grow(run: StandingRun, group: Group, before: anyio.Event | None, sent: anyio.Event) -> None:
        found: list[RolloutRecord] = []
        async with background(cancel=False) as branches:

            async def branch(row: bytes, turn: int, depth: int) -> None:
                async with places:
                    record = await run.rollout(row)
                found.append(record)
                if depth < plan.depth:
                    await start(record, turn, depth + 1)

            async def start(record: RolloutRecord, shared: int, depth: int) -> None:
                # In a thread: the row of a long rollout takes seconds.
                rows = await to_thread.run_sync(lambda: list(plan.rows(record, shared)))
                for row, turn in rows:
                    branches.start_soon(branch, row, turn, depth)

            for record in group.rollouts:
                await start(record, 0, 1)
        if before is not None:
            await before.wait()
        found.sort(key=lambda record: record.task_index)
        kept = [one for one in found if masked or one.reward is not None]
        failures = [*group.failures, *(one for one in found if one.reward is None)]
        whole = msgspec.structs.replace(group, rollouts=[*group.rollouts, *kept], failures=failures)
        async with sending:
            await stream.send(whole)
        sent.set()

    async with aclosing(stream.results(tasks, work, lambda _: trees.release())) as complete:
        async for group in complete:
            yield group
