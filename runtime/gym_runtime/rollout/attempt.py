"""The attempts that one delivery of a rollout leads to.

An attempt that fails for a reason that may pass is repeated, up to the task's ``max_attempts``, with one
budget of retries for all of them; after that, or for any other reason, the rollout has failed.
"""

from __future__ import annotations

import random

import anyio

from gym_runtime import clock, logs
from gym_runtime.environment.roles import JudgedVerdict
from gym_runtime.errors import (
    DeadlineExceeded,
    Fenced,
    GymError,
    JournalMismatch,
    RuntimeFault,
    SessionLost,
    StaleWeights,
)
from gym_runtime.logs import logger
from gym_runtime.messages.outcomes import Cancelled, Completed, Failed, Outcome, RolloutRecord, Truncated
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.agent import Agent
from gym_runtime.rollout.journal import Journal
from gym_runtime.rollout.record import make_record
from gym_runtime.rollout.rollout import Rollout
from gym_runtime.rollout.staleness import staleness
from gym_runtime.rpc.retry_budget import Budget
from gym_runtime.rpc.router import Router


class Attempts:
    """One delivered rollout, from its first attempt here to the record that settles it.

    Attributes:
        task: what was delivered.
        detached: it was stopped because its client is gone; the task goes back to the queue.
    """

    def __init__(
        self, task: RolloutSpec, agent: Agent, router: Router, journal: Journal, worker: str
    ) -> None:
        self.task = task
        self._journal = journal
        self._agent = agent
        self._router = router
        self._worker = worker
        self._scope = anyio.CancelScope()
        self._budget = Budget()
        self._rollout: Rollout | None = None
        self._started_s = clock.now()
        self._lost: list[str] = []
        self.detached = False

    def cancel(self) -> None:
        """Stop wherever it is; the rollout ends as cancelled."""
        self._scope.cancel()

    def suspend(self) -> None:
        """Stop wherever it is: nobody waits for the result at present."""
        self.detached = True
        self._scope.cancel()

    async def run(self, before: int) -> RolloutRecord:
        """The record of the first attempt that settles the rollout."""
        attempt = before + 1
        pause_s = 0.1
        with self._scope:
            for attempt in range(before + 1, before + self.task.max_attempts + 1):
                logs.set_rollout(self.task.rollout_id, attempt)
                self._started_s = clock.now()
                self._rollout = None
                try:
                    return await self._once(attempt)
                except Fenced:
                    raise
                except GymError as error:
                    if not error.retryable or attempt == before + self.task.max_attempts:
                        return self.failed(attempt, error)
                    logger().warning("an attempt failed and is repeated", error=str(error))
                    anew = self.task.durability == "result" or isinstance(
                        error, (SessionLost, JournalMismatch, StaleWeights)
                    )
                    if anew:
                        self._lost.append(f"{type(error).__name__}: {error.message}")
                except Exception as error:  # noqa: BLE001 - the handler boundary: an agent's bug fails its rollout
                    logger().exception("an agent raised")
                    fault = RuntimeFault(f"{type(error).__name__}: {error}", stage="agent")
                    return self.failed(attempt, fault)
                if anew:
                    await self.close()
                    await self._journal.discard()
                else:
                    await self._journal.load()
                await anyio.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s *= 2
        return self._record(attempt, Cancelled(), None)

    async def _once(self, attempt: int) -> RolloutRecord:
        task = self.task
        with anyio.CancelScope(deadline=anyio.current_time() + task.timeout_s):
            rollout = self._rollout = Rollout(task, attempt, self._router, self._journal, self._budget)
            await self._agent.run(rollout)
            self._check_staleness(rollout)
            verdict = await rollout.verify()
            reason = rollout.truncated
            return self._record(attempt, Truncated(reason=reason) if reason else Completed(), verdict)
        hop = self._router.slowest(task.rollout_id)
        raise DeadlineExceeded(
            f"the rollout took longer than {task.timeout_s:.0f} s"
            + (f"; it was waiting for {hop.name} since {hop.waited_s():.0f} s" if hop else ""),
            stage=hop.kind if hop else "agent",
        )

    def _check_staleness(self, rollout: Rollout) -> None:
        allowed = self.task.max_staleness
        if allowed is None or not rollout.weight_versions:
            return
        newest = [
            presence.detail.get("weight_version", "")
            for presence in self._router.views["model"].alive()
            if self.task.model in presence.pools
        ]
        lag = staleness(rollout.weight_versions, newest)
        if lag > allowed:
            raise StaleWeights(
                f"sampled from weights {lag} versions old ({', '.join(rollout.weight_versions)}); "
                f"the run allows {allowed}",
                stage="model",
            )

    def failed(self, attempt: int, error: GymError) -> RolloutRecord:
        """The record of a rollout that failed for good."""
        return self._record(attempt, Failed(fault=error.fault()), None)

    def leave(self) -> None:
        """Let the session be if another attempt may have it; one that nobody else knows is still closed."""
        if self._journal.shared:
            self._rollout = None

    async def close(self) -> None:
        """Let go of the session, if there is one; not an error when that does not work."""
        rollout = self._rollout
        if rollout is not None:
            try:
                with anyio.move_on_after(2, shield=True):
                    await rollout.close()
            except GymError as error:
                logger().info("a session was not closed; its time limit will", error=str(error))

    def _record(self, attempt: int, outcome: Outcome, verdict: JudgedVerdict | None) -> RolloutRecord:
        return make_record(
            self.task,
            outcome,
            attempt=attempt,
            rollout=self._rollout,
            verdict=verdict,
            duration_s=clock.now() - self._started_s,
            worker=self._worker,
            started_anew=self._lost,
        )
