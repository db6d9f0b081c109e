"""Follow a run's records: each once, in the order of their commits; those of a group with their rewards."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.abc import TaskGroup

from gym_runtime import tracing
from gym_runtime.client.publishing import Publishing, queue_of
from gym_runtime.client.stored_results import stored_results
from gym_runtime.client.streaming import background
from gym_runtime.client.window import Window
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec, encode_spec, is_comparison
from gym_runtime.messages.stored_records import RUNS, RunInfo
from gym_runtime.rollout.comparisons import Comparisons
from gym_runtime.rollout.journal import journal_subject

CANCEL_GRACE_S = 2.0
"""How long a cancelled run's client waits for the records of rollouts that were ending."""


SHED = 10_000
"""Of a run's records that the client has had, so many at least stay at the broker, to refuse second ones."""


class Following(Publishing):
    """Reads what the workers commit, and publishes the comparisons of groups that are complete."""

    async def follow(
        self,
        run: str,
        total: int | Callable[[], float],
        take: Callable[[RolloutRecord], Awaitable[None] | None],
        *,
        shed: bool = False,
        recount: anyio.Event | None = None,
        skip: Callable[[int, int], bool] | None = None,
        comparisons: Comparisons | None = None,
        window: Window | None = None,
    ) -> bool:
        """Hand over a run's records as they are committed, each once, until there are ``total``.

        Records that wait for the comparison of their group are handed over together, with their rewards, once
        it is there. When their group is complete, this publishes it.

        ``total`` may be a function where it is not known yet, or where ``take`` leads to more of them; it is
        looked at again when ``recount`` is set. With ``shed`` the broker forgets what was handed over long
        ago, so that a long run needs no more of its memory and disk than a short one; no other client can
        collect all of the run then. ``skip`` says of a task's and a rollout's index that its record was had
        before; it is not handed over and does not count. The places of ``window`` are for others while a
        record waits.

        Returns False if the run is over without that: it was cancelled, and what was in flight then is
        handed over too; or somebody else had all records and freed them.
        """
        run = token(run, "run")
        expected = total if callable(total) else lambda: float(total)
        comparisons = comparisons or Comparisons(skip, resumed=skip is not None)
        count = 0
        mark = 0
        # Infinite while a record is handed over: a reader that takes long must not look like silence.
        waiting_since_s = math.inf

        async def stop_when_over(scope: anyio.CancelScope) -> None:
            async for record in self.bus.records(f"runs.{run}"):
                info = RUNS.read(record)
                if info is not None and info.state != "active":
                    break
            # The run is over, but results of what was in flight may still come; it ends when none came for a
            # while.
            while True:
                await anyio.sleep(CANCEL_GRACE_S / 4)
                if anyio.current_time() >= waiting_since_s + CANCEL_GRACE_S:
                    scope.cancel()

        async def stop_when_complete(scope: anyio.CancelScope, recount: anyio.Event) -> None:
            await recount.wait()
            if count >= expected():
                scope.cancel()

        async def hand_over(record: RolloutRecord) -> None:
            nonlocal count
            if skip is None or not skip(record.task_index, record.rollout_index):
                taken = take(record)
                if taken is not None:
                    await taken
                count += 1

        # First `followed`: from now on no other client frees the records.
        async with self.followed(run), background() as tasks:
            tasks.start_soon(stop_when_over, tasks.cancel_scope)
            if recount is not None:
                tasks.start_soon(stop_when_complete, tasks.cancel_scope, recount)
            if count < expected():
                waiting_since_s = anyio.current_time()
                async for stored in stored_results(self.bus, run):
                    waiting_since_s = math.inf
                    record = stored.record
                    before = count // SHED
                    if not stored.readable:
                        comparisons.lose(record)
                    if stored.readable and record.group is None and not is_comparison(record.rollout_index):
                        await hand_over(record)
                    else:
                        await self._settle(record, comparisons, hand_over, window, tasks)
                    self._sweep_up(record, tasks, skip)
                    if shed and count // SHED > before:
                        if mark:
                            # Up to the mark before this one: so `SHED` records at least stay.
                            tasks.start_soon(partial(self.bus.forget, f"rollout.{run}.>", before=mark))
                        mark = stored.sequence
                    if count >= expected():
                        break
                    waiting_since_s = anyio.current_time()
        if count < expected() and (await self.known(RunInfo(run=run, total=0))).state == "cancelled":
            for record in comparisons.rest():
                await hand_over(record)
        return count >= expected()

    async def _settle(
        self,
        record: RolloutRecord,
        comparisons: Comparisons,
        hand_over: Callable[[RolloutRecord], Awaitable[None]],
        window: Window | None,
        tasks: TaskGroup,
    ) -> None:
        """Take in a record of a group, or of a comparison, and do what follows from it."""
        if record.waiting is not None and window is not None:
            window.release(record)
        for ready in comparisons.take(record):
            if isinstance(ready, RolloutSpec):
                tasks.start_soon(self._compare, ready)
                back = [(ready.task_index, candidate.rollout_index) for candidate in ready.candidates]
            else:
                waited = ready is not record and not is_comparison(record.rollout_index)
                back = [(ready.task_index, ready.rollout_index)] if waited else []
            if window is not None:
                # Places are taken back before the record is handed over, which gives them up again.
                for key in back:
                    window.take_again(*key)
            if isinstance(ready, RolloutRecord):
                await hand_over(ready)

    async def _compare(self, task: RolloutSpec) -> None:
        """Publish the comparison of a group, unless it is being made or has a result."""
        if await self.bus.latest(f"rollout.{rollout_token(task.rollout_id)}"):
            return
        # A subject of its own, by which the broker knows that it is queued already.
        subject = f"{queue_of(task)}.{task.task_index}.{task.rollout_index}"
        await self.bus.enqueue(subject, encode_spec(task), headers=tracing.headers(), once=True)

    def _sweep_up(
        self, record: RolloutRecord, tasks: TaskGroup, skip: Callable[[int, int], bool] | None
    ) -> None:
        """Forget the journals that this record was the last to need."""
        # A client that has published nothing of a run has no sweep for it.
        sweep = self._sweeps.get(record.run)
        if sweep is None or (skip is not None and skip(record.task_index, record.rollout_index)):
            return
        if is_comparison(record.rollout_index):
            done = f"{journal_subject(record.run, record.task_index, record.rollout_index)}.>"
        else:
            done = sweep.committed(record.task_index)
        if done is not None:
            tasks.start_soon(self.bus.forget, done)
