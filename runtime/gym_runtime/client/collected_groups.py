"""Rollouts that come in groups, one for each row; and results in the order of the rows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec

from gym_runtime.client.row_sources import RowSources
from gym_runtime.client.run import Run, Window
from gym_runtime.client.runs import Runs
from gym_runtime.client.streaming import ResultStream
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo
from gym_runtime.rollout.groups import Cancel, Group, GroupPolicy, Groups, Make

T = TypeVar("T")


async def run_groups(
    runs: Runs,
    specs: Iterable[RolloutSpec],
    info: RunInfo,
    sources: RowSources,
    *,
    on_failure: GroupPolicy,
    in_flight: int,
    ordered: bool,
    seeded: bool,
) -> AsyncGenerator[Group]:
    """Run rollouts; yields each row's rollouts together, as soon as all of them are settled.

    Args:
        seeded: as for `Groups`.

    Raises:
        UsageError: there is no such policy.
    """
    groups = Groups(on_failure, seeded=seeded)
    order, window = InputOrder[Group](), Window(in_flight)
    specs = groups.noting(specs)
    if ordered:
        specs = order.expecting(specs, lambda spec: spec.task_index)
    stream = ResultStream[Group]()

    async def take(record: RolloutRecord) -> None:
        commands = groups.take(record)
        # A replacement takes the place of the failed rollout; a released one would go to another row.
        if not any(isinstance(command, Make) for command in commands):
            window.release(record)
        for command in commands:
            match command:
                case Make(task):
                    await run.publish_replacement(task)
                case Cancel(task_index, rollouts):
                    for rollout_index in rollouts:
                        await runs.cancel(record.run, task_index, rollout_index)
                case Group():
                    row, key = sources.take(command.task_index)
                    group = msgspec.structs.replace(command, row=row, key=key)
                    for due in order.arrived(group.task_index, group) if ordered else (group,):
                        await hand_over(due)

    async def hand_over(group: Group) -> None:
        # Until it is yielded a whole group takes places, so that a slow reader gets none that is long over.
        # One that waits for its order takes none: what it waits for may need them.
        for record in group.rollouts:
            window.take_again(record.task_index, record.rollout_index)
        await stream.send(group)

    def yielded(group: Group) -> None:
        for record in group.rollouts:
            window.release(record)

    run = Run(runs, info, take, window=window)

    async def work() -> None:
        await run.drive(specs)
        for due in order.rest():
            await hand_over(due)

    async with aclosing(stream.results(runs.tasks, work, yielded)) as complete:
        async for group in complete:
            yield group


class InputOrder(Generic[T]):
    """Holds back results that overtook others, so that they are handed over in the order of the input."""

    def __init__(self) -> None:
        self._due: deque[Hashable] = deque()
        self._awaited: set[Hashable] = set()
        self._arrived: dict[Hashable, deque[T]] = defaultdict(deque)

    def expecting(
        self, specs: Iterable[RolloutSpec], name: Callable[[RolloutSpec], Hashable]
    ) -> Iterator[RolloutSpec]:
        """The specs; from now on their results are expected in this order, by name."""
        for spec in specs:
            # A row of a list that repeats joins its group, and needs no place of its own.
            if (named := name(spec)) not in self._awaited:
                self._awaited.add(named)
                self._due.append(named)
            yield spec

    def arrived(self, name: Hashable, result: T) -> Iterator[T]:
        """The results that can be handed over now.

        A result left by an earlier part of the run may arrive before its row is read.
        """
        self._awaited.discard(name)
        self._arrived[name].append(result)
        while self._due and self._due[0] in self._arrived:
            yield self._take(self._due.popleft())

    def rest(self) -> Iterator[T]:
        """The results still held back at the end, because earlier ones never arrived."""
        for name in self._due:
            if name in self._arrived:
                yield self._take(name)

    def _take(self, name: Hashable) -> T:
        results = self._arrived[name]
        result = results.popleft()
        if not results:
            del self._arrived[name]
        return result
