"""The attempts of one delivery of a rollout.

An attempt that fails with a retryable error is repeated, until ``max_attempts`` attempts have failed; after
that, or for any other error, the rollout has failed. An attempt that lost its session because a worker ended
does not count. All attempts, also those of other deliveries, share one deadline and one budget of retries
(`rollout.account`).

An error that an agent raises inside a task group has the same effect as the error alone. A
cancellation from outside (the run is cancelled, the deadline passes, the worker stops) stays a cancellation,
whatever other errors the group holds; a cancellation by the agent itself is an error of the agent
(`gym_runtime.cancellation`).

A rollout sampled from weights that are too old fails as stale. A version of weights is a text that the
trainer chooses. The number at its end, such as a step, is compared: ``12``,
``step-12``, ``v12``. Two texts without a number count as equal or as one version apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from gym_runtime import clock, logs
from gym_runtime.bus.interface import Bus
from gym_runtime.cancellation import contained, raised_at
from gym_runtime.environment.roles import JudgedPending, JudgedVerdict
from gym_runtime.errors import (
    DeadlineExceeded,
    Fenced,
    GymError,
    JournalMismatch,
    RuntimeFault,
    SessionLost,
    StaleWeights,
    described,
    leaf,
)
from gym_runtime.logs import logger
from gym_runtime.messages.calls import Comparison
from gym_runtime.messages.metric_names import RESAMPLED, RETRIES
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.rollout.account import Account
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.record import Facts, make_record
from gym_runtime.rollout.rollout import Agent, Rollout
from gym_runtime.rpc.actors import Actors
from gym_runtime.timing import STATE_CHECKED_S

ATTEMPT_PAUSES = Pauses(first_s=0.1, longest_s=5.0)
"""The pauses between two attempts of a rollout."""
EASED_S = 1.0
"""With fewer seconds than this to the deadline, the result is encoded at once, even if the connection is
crowded."""


@dataclass(eq=False)
class Attempts:
    """One delivered rollout, from its first attempt here to the record that settles it.

    Attributes:
        task: the rollout that was delivered.
        account: how much of its limits its attempts have used.
        stopped: it was told to stop.
    """

    task: RolloutSpec
    _agent: Agent
    _bus: Bus
    _actors: Actors
    _journal: Journal
    account: Account
    _worker: str
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _rollout: Rollout | None = None
    _started_s: float = field(default_factory=clock.monotonic)
    _lost: list[str] = field(default_factory=list[str])
    _failed: str = ""
    stopped: bool = False

    def stop(self) -> None:
        """Stop at once; the rollout ends as cancelled."""
        self.stopped = True
        self._scope.cancel()

    @property
    def number(self) -> int:
        """The number of the present attempt, from 1 on."""
        return self.task.attempt_base + self.account.spent.attempts + 1

    async def run(
        self, *, known: bool = False, wait: Callable[[], Awaitable[None]] | None = None
    ) -> RolloutRecord:
        """The record of the first attempt that settles the rollout.

        Args:
            known: an earlier delivery may have begun the rollout, so this one stores that it begins.
            wait: returns when the attempts may begin.

        Raises:
            Fenced: another attempt has taken over the rollout.
        """
        self._journal.hold = self._hold
        try:
            return await self._run(known, wait)
        finally:
            self._journal.hold = None  # else each would hold the other until a garbage collection

    async def _run(self, known: bool, wait: Callable[[], Awaitable[None]] | None) -> RolloutRecord:
        backoff = Backoff(ATTEMPT_PAUSES)
        with self._scope:
            if wait is not None:
                # Not working: if this worker ends now, the rollout only waited here and counts no loss.
                await self._note(working=False)
                await wait()
            await self._hold()
            if self._bus.refused:
                # The broker stores nothing now: a turn that is not stored is paid for in vain.
                await self._bus.stores()
            self.account.start()
            # Not `fail_after`: its TimeoutError could be the agent's own.
            self._scope.deadline = anyio.current_time() + self.account.left_s
            if known or wait is not None:
                await self._note()
            while True:
                logs.set_rollout(self.task.rollout_id, self.number)
                self._started_s = clock.monotonic()
                # Cleared, because a rollout whose row is refused must not report the previous attempt.
                self._rollout = None
                losses = self.account.budget.losses
                try:
                    return await self._once()
                # Another worker has the rollout now, so this one has nothing to record.
                except Fenced:
                    raise
                except GymError as error:
                    # The budget counts a session that was lost because a worker ended; that is not the
                    # rollout's failure.
                    failed = not isinstance(error, SessionLost) or self.account.budget.losses == losses
                    tries = self.account.spent.failures + failed
                    if not error.retryable or tries >= self.task.max_attempts:
                        return self.failed(error)
                    logger().warning("an attempt failed and is repeated", error=str(error))
                    self._failed = f"; attempt {self.number} had failed: {error}"
                    self._actors.meter.add(RETRIES, "agent", type(error).__name__)
                    # The next attempt must not follow a journal that this one contradicts, or stale answers.
                    restart = self.task.durability == "result" or isinstance(
                        error, (SessionLost, JournalMismatch, StaleWeights)
                    )
                    if restart:
                        self._lost.append(f"{type(error).__name__}: {error.message}")
                # The handler boundary: an agent's bug, or its `sys.exit`, fails its rollout and no other.
                except (Exception, SystemExit) as error:  # noqa: BLE001
                    logger().exception("an agent raised")
                    fault = RuntimeFault(
                        f"{described(error)} ({raised_at(error.__traceback__)})", stage="agent"
                    )
                    return self.failed(fault)
                if restart:
                    # Before the journal is discarded, because the journal names the session to close.
                    await self.close()
                    await self._journal.discard()
                    self.account.budget.role_use = {}  # it went with the session
                else:
                    # From the broker: a turn may be stored whose acknowledgement did not arrive.
                    await self._journal.load()
                self.account.attempt_over(failed=failed)
                await self._note()
                await backoff.wait()
                # Its agent may ask without a pause: where all engines are away, the attempt would fail, too.
                await self._hold()
        # Only a cancelled `_scope` is left here; `run` returns or raises otherwise.
        return self._record(Cancelled(), None) if self.stopped else self.failed(self._too_late())

    async def _hold(self) -> None:
        """Wait while all engines of one of its models are too busy, or away; that time does not count."""
        task, scope = self.task, self._scope
        # Those that are compared have been sampled.
        pools = [*([] if task.candidates else [task.model]), *task.roles.values()]
        if not any(map(self._actors.held, pools)):
            return
        if self.account.held:
            # Another turn of the same rollout counts the time.
            await self._room(pools)
            return
        deadline, scope.deadline = scope.deadline, math.inf
        self.account.hold()
        try:
            await self._room(pools)
        finally:  # also if the question is given up, or the rollout would have no deadline from here on
            held_s = self.account.go_on()
            scope.deadline = deadline + held_s
            if self._rollout is not None:
                self._rollout.postpone(held_s)

    async def _room(self, pools: Sequence[str]) -> None:
        while away := next(filter(self._actors.held, pools), None):
            await self._actors.room(away)

    async def _note(self, *, working: bool = True) -> None:
        if not await self.account.note(working=working):
            raise Fenced("another attempt has taken over this rollout", stage="agent")

    async def _once(self) -> RolloutRecord:
        task, account = self.task, self.account
        rollout = self._rollout = Rollout(
            task, self.number, self._actors, self._journal, account.budget, account.left_s
        )
        rollout.times.queue_s = account.queued_s
        if task.candidates:
            return self._compared(Completed(), await rollout.compare())
        await rollout.open()
        await self._ask_agent(rollout)
        await self._check_staleness(rollout)
        await self._hold()
        verdict = await rollout.verify()
        if self._bus.crowded:
            # The record holds a second copy of the row. A verified rollout does not time out in this wait.
            await self._bus.ease(rollout.deadline_s - EASED_S)
        reason = rollout.truncated
        return self._record(Truncated(reason=reason) if reason else Completed(), verdict)

    def _too_late(self) -> DeadlineExceeded:
        slowest = self.account.budget.waited_for
        return DeadlineExceeded(
            f"the rollout took longer than {self.task.timeout_s:.0f} s"
            + (f"; it had waited {slowest.waited_s():.0f} s for {slowest.name}" if slowest else ""),
            stage=slowest.kind if slowest else "agent",
        )

    async def _ask_agent(self, rollout: Rollout) -> None:
        try:
            async with contained(RuntimeFault, "agent"):
                await self._agent.run(rollout)
        except BaseExceptionGroup as group:
            raise leaf(group) from group

    async def _check_staleness(self, rollout: Rollout) -> None:
        allowed = self.task.max_staleness
        if allowed is None or not rollout.weight_versions:
            return
        lag = staleness(rollout.weight_versions, self._actors.weight_versions(self.task.model))
        if lag > allowed:
            # A trainer may go on from older weights: those before the update are known until it is announced.
            await anyio.sleep(2 * STATE_CHECKED_S)
            lag = staleness(rollout.weight_versions, self._actors.weight_versions(self.task.model))
        if lag > allowed:
            raise StaleWeights(
                f"sampled from weights {lag} versions old ({', '.join(rollout.weight_versions)}); "
                f"the run allows {allowed}",
                stage="model",
            )

    def failed(self, error: GymError) -> RolloutRecord:
        """The record of a rollout that failed for good."""
        if isinstance(error, DeadlineExceeded) and self._failed:
            # Its time may have gone by while it was tried again for another reason.
            error = DeadlineExceeded(f"{error}{self._failed}", stage=error.stage)
        return self._record(Failed(fault=error.fault()), None)

    def leave(self) -> None:
        """Leave the session open if another attempt may use it; `close` still closes an unshared one."""
        if self._journal.shared:
            self._rollout = None

    async def close(self) -> None:
        """Close the session, if there is one. A failure is only logged: the session has a time limit."""
        rollout = self._rollout
        if rollout is not None:
            try:
                try:
                    await rollout.close()  # this hardly ever waits, and a shield is not free
                except anyio.get_cancelled_exc_class():
                    # A cancelled rollout must close its session as well.
                    with anyio.move_on_after(2, shield=True):
                        await rollout.close()
                    raise
            except GymError as error:
                logger().info("a session was not closed; its time limit will close it", error=str(error))

    def _compared(self, outcome: Outcome, comparison: Comparison | None) -> RolloutRecord:
        role_use = self.account.budget.role_use
        if comparison is None and role_use:
            comparison = Comparison(verdicts=[], role_use=role_use)
        return RolloutRecord(
            run=self.task.run,
            task_index=self.task.task_index,
            rollout_index=self.task.rollout_index,
            environment=self.task.environment,
            outcome=outcome,
            row=NULL,
            attempt=self.number,
            duration_s=clock.monotonic() - self._started_s,
            worker=self._worker,
            comparison=comparison,
        )

    def _record(self, outcome: Outcome, verdict: JudgedVerdict | JudgedPending | None) -> RolloutRecord:
        if self.task.candidates:
            return self._compared(outcome, None)
        facts = Facts.of_row(self.task.row) if self._rollout is None else self._rollout.facts()
        if count := facts.branches.resampled:
            self._actors.meter.add(RESAMPLED, self.task.environment, self.task.model, by=count)
        return make_record(
            self.task,
            outcome,
            facts,
            attempt=self.number,
            verdict=verdict,
            duration_s=clock.monotonic() - self._started_s,
            worker=self._worker,
            role_use=self.account.budget.role_use,
            started_anew=self._lost,
        )


_NUMBER = re.compile(r"(\d+)$")


def staleness(used: Sequence[str], current: Sequence[str]) -> int:
    """How many versions older the oldest of ``used`` is than the newest of ``current`` and ``used``.

    Beside names with numbers a name without one counts as 0: an engine starts with such weights.

    >>> staleness(["step-7", "step-9"], ["step-10"]), staleness(["a"], ["a"]), staleness(["a"], ["b"])
    (3, 0, 1)
    >>> staleness(["3"], []), staleness(["default", "step-4"], ["step-5"])
    (0, 5)
    """
    known = [version for version in (*used, *current) if version]
    numbers = {version: int(found[1]) for version in known if (found := _NUMBER.search(version))}
    if numbers:
        newest = max(numbers.values())
        return newest - min((numbers.get(version, 0) for version in used if version), default=newest)
    return int(len(set(known)) > 1)
