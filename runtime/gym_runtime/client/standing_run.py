"""A run that stays open, for callers that ask for one rollout at a time.

Opening a run costs several exchanges with the broker; a rollout of a standing run costs only its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Unpack

import anyio
import msgspec

from gym_runtime.client.row_sources import AnyRow
from gym_runtime.client.run import Run
from gym_runtime.client.runs import Runs
from gym_runtime.client.status import Counter
from gym_runtime.client.streaming import background
from gym_runtime.errors import GymError, UsageError
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_keywords import SamplingKeywords
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import RunInfo

ROLLOUT_CANCEL_S = 2.0
"""How long the cancellation of one rollout of a standing run may take."""


Expand = Callable[[AnyRow, Mapping[str, Any]], Iterator[RolloutSpec]]


class StandingRun:
    """A run that takes rows one by one. Made by `Client.standing_run`; its methods may run concurrently.

    Attributes:
        run: its id.
        add_use: counts sampled tokens of an environment by what became of them, in the figures of the run.
    """

    def __init__(self, runs: Runs, info: RunInfo, expand: Expand, counter: Counter) -> None:
        self.run = info.run
        self.add_use = counter.add_use
        self._runs = runs
        self._expand = expand
        self._awaited: dict[tuple[int, int], asyncio.Future[RolloutRecord | None]] = {}
        self._why_over = ""
        self._ended = anyio.Event()

    async def rollout(self, row: AnyRow, **sampling: Unpack[SamplingKeywords]) -> RolloutRecord:
        """Run one rollout of a row, and return its record; a failed one has no reward.

        If the caller is cancelled, so is the rollout.

        Args:
            sampling: sampling settings for this rollout alone, as `Client.rollouts` takes them.

        Raises:
            TaskError, UsageError: the row or a setting is wrong.
            GymError: the run is over, or the connection is.
        """
        return await self.task(row, **sampling).rollout(0)

    def task(self, row: AnyRow, **sampling: Any) -> StandingTask:
        """A task whose rollouts are run one by one; the arguments and errors are those of `rollout`."""
        self.require_open()
        (spec,) = self._expand(row, sampling)
        if spec.group is not None:
            raise UsageError(
                f"environment '{spec.environment}' compares the rollouts of a row: use rollouts or groups, "
                "with repeats of at least 2"
            )
        return StandingTask(self, spec)

    def require_open(self) -> None:
        """Check that the run is open.

        Raises:
            GymError: the run is over.
        """
        if self.over:
            raise GymError(f"run {self.run} is over: {self._why_over}")

    async def record_of(self, spec: RolloutSpec) -> RolloutRecord:
        """Run one rollout, and return its record; see `rollout`."""
        self.require_open()
        name = spec.task_index, spec.rollout_index
        # Before it is published: its record may come before `publish_one` returns.
        awaited = self._awaited[name] = asyncio.get_running_loop().create_future()
        try:
            await self._runs.publish_one(spec)
            record = await awaited
        # Also for a failed publication: the broker may have stored it all the same.
        except BaseException:
            # The caller must see the error that stopped the waiting.
            with anyio.move_on_after(ROLLOUT_CANCEL_S, shield=True), suppress(GymError):
                await self._runs.cancel(self.run, *name)
            raise
        finally:
            del self._awaited[name]
        if record is None:
            raise GymError(f"run {self.run} is over, and this rollout has no record: {self._why_over}")
        return record

    @property
    def pending(self) -> int:
        """How many rollouts have no record yet."""
        return len(self._awaited)

    @property
    def over(self) -> bool:
        """No rollout is begun any more."""
        return bool(self._why_over)

    async def ended(self) -> None:
        """Return when the run is over."""
        await self._ended.wait()

    def take(self, record: RolloutRecord) -> None:
        """A record arrived."""
        awaited = self._awaited.get((record.task_index, record.rollout_index))
        if awaited is not None and not awaited.done():
            awaited.set_result(record)

    def stop(self) -> None:
        """Begin no more rollouts: the run was cancelled. Records of those in flight may still come."""
        self._why_over = self._why_over or "it was cancelled"

    def end(self, why: str) -> None:
        """No more records come."""
        self._why_over = why
        self._ended.set()
        for awaited in self._awaited.values():
            # They wake up without a record, and raise why.
            if not awaited.done():
                awaited.set_result(None)


class StandingTask:
    """A task of a standing run. Made by `StandingRun.task`.

    Attributes:
        task_index: its number in the run.
        environment: its name.
    """

    def __init__(self, run: StandingRun, spec: RolloutSpec) -> None:
        self.task_index, self.environment = spec.task_index, spec.environment
        self._run, self._spec = run, spec

    async def rollout(self, rollout_index: int) -> RolloutRecord:
        """Run the rollout of this index, which is used once; as `StandingRun.rollout`."""
        return await self._run.record_of(msgspec.structs.replace(self._spec, rollout_index=rollout_index))


@asynccontextmanager
async def opened(runs: Runs, info: RunInfo, expand: Expand) -> AsyncGenerator[StandingRun]:
    """A run that is open as long as this context lasts; what is in progress at its end is cancelled."""
    counter = Counter(info.created_s)
    standing = StandingRun(runs, info, expand, counter)
    run = Run(runs, info, standing.take, counter=counter, over=standing.stop)

    async def follow() -> None:
        why = "it was cancelled"
        try:
            await run.follow(shed=True)
        except GymError as error:
            why = str(error)
        standing.end(why)

    async with run.attached(), background() as tasks:
        tasks.start_soon(follow)
        try:
            yield standing
        finally:
            # Read before `end`, which lets those that wait go.
            run.finished = not standing.pending
            run.info = msgspec.structs.replace(run.info, total=run.counter.done)
            standing.end("it was closed")
