"""The agent worker: pulls rollouts by credit, runs them, commits each result once.

A delivery is acked after its record is committed (or found to be committed already). An attempt that
fails for a reason that may pass is tried again, up to the task's ``max_attempts``; after that, or for
any other reason, the rollout is committed as failed. A task whose workers died ``MAX_DELIVERIES`` times
is committed as failed as well: nothing is retried for ever, nothing is lost in silence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import anyio
import msgspec

from gym_runtime import clock, logs, tracing
from gym_runtime.agent import Agent
from gym_runtime.bus.contract import Bus, Delivery, Incoming
from gym_runtime.errors import (
    DeadlineExceeded,
    GymError,
    JournalMismatch,
    Overtaken,
    RuntimeFault,
    SessionLost,
    StaleWeights,
)
from gym_runtime.journal import Journal, journal_subject
from gym_runtime.logs import logger
from gym_runtime.messages.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    RolloutRecord,
    Truncated,
    encode_record,
)
from gym_runtime.messages.tasks import RolloutTask, decode_task
from gym_runtime.record import make_record
from gym_runtime.rollout import Rollout
from gym_runtime.verdict import Verdict
from gym_runtime.weights import staleness
from gym_runtime.workers.budget import Budget
from gym_runtime.workers.router import Router

MAX_DELIVERIES = 8
REMEMBERED_CANCELS = 4096


class AgentWorker:
    """Runs the rollouts of one or more agents.

    Args:
        worker: this worker's id.
        agents: by name; the worker pulls from each one's queue.
        slots: rollouts in flight at most, over all agents.
    """

    def __init__(self, bus: Bus, *, worker: str, agents: Mapping[str, Agent], slots: int) -> None:
        self.worker = worker
        self.slots = slots
        self.in_use = 0
        self._bus = bus
        self._agents = dict(agents)
        self._router = Router(bus, "model", "resource")
        self._running: dict[str, dict[str, _Attempt]] = {}
        self._cancelled: dict[str, None] = {}
        self._stop = anyio.Event()
        self._finished = anyio.Event()

    @property
    def load(self) -> float:
        return self.in_use / self.slots

    async def drain(self) -> None:
        """Take nothing new, and return when what is in flight is finished."""
        self._stop.set()
        await self._finished.wait()

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Work until drained or cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._router.run)
            async with self._bus.serve("cancel.>", self._cancel):
                ready()
                async with anyio.create_task_group() as pulls:
                    for name in self._agents:
                        pulls.start_soon(self._pull, name)
            self._finished.set()
            tasks.cancel_scope.cancel()

    async def _pull(self, name: str) -> None:
        await self._bus.pull(
            f"task.{name}.>",
            consumer=f"agent-{name}",
            slots=max(1, self.slots // len(self._agents)),
            handle=self._handle,
            stop=self._stop,
        )

    def _cancel(self, incoming: Incoming) -> None:
        """``cancel.<run>`` or ``cancel.<run>.<task_index>[.<rollout_index>]``."""
        _, run, *rest = incoming.subject.split(".")
        prefix = ".".join([run, *rest])
        self._cancelled[prefix] = None
        while len(self._cancelled) > REMEMBERED_CANCELS:
            del self._cancelled[next(iter(self._cancelled))]
        for rollout_id, attempt in list(self._running.get(run, {}).items()):
            if f"{rollout_id}.".startswith(f"{prefix}."):
                attempt.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            task = decode_task(delivery.payload)
        except msgspec.DecodeError as error:
            logger().error("a task cannot be read and is dropped", subject=delivery.subject, error=str(error))
            return await delivery.ack()
        subject = f"rollout.{task.rollout_id}"
        if delivery.deliveries > 1 and await self._bus.latest(subject):
            return await delivery.ack()
        self.in_use += 1
        try:
            await self._run(task, delivery, subject)
        finally:
            self.in_use -= 1
        return None

    async def _run(self, task: RolloutTask, delivery: Delivery, subject: str) -> None:
        before = task.attempt_base + (delivery.deliveries - 1) * task.max_attempts
        journal = self._journal(task)
        if delivery.deliveries > 1:
            await journal.load()
        attempt = _Attempt(task, self._agents[task.agent], self._router, journal, self.worker)
        siblings = self._running.setdefault(task.run, {})
        siblings[task.rollout_id] = attempt
        try:
            logs.set_rollout(task.rollout_id, before + 1)
            with tracing.span("rollout", delivery.headers, rollout=task.rollout_id):
                if any(prefix in self._cancelled for prefix in (task.run, task.group_id, task.rollout_id)):
                    attempt.cancel()
                if delivery.deliveries > MAX_DELIVERIES:
                    lost = RuntimeFault(
                        f"delivered {delivery.deliveries} times; each time its worker was lost"
                    )
                    record = attempt.failed(before, lost)
                else:
                    record = await attempt.run(before)
                if not await self._bus.commit(subject, encode_record(record)):
                    logger().info("refused a second result", attempt=record.attempt)
            await delivery.ack()
            if delivery.deliveries > 1:
                # An attempt whose worker died may have left a session that this one never knew of.
                await self._bus.publish(f"over.{task.environment}", task.rollout_id.encode())
        except Overtaken as error:
            logger().info("this attempt stops", reason=str(error))
            delivery.abandon()
            attempt.leave()
        finally:
            if siblings.get(task.rollout_id) is attempt:
                del siblings[task.rollout_id]
            if not siblings:
                self._running.pop(task.run, None)
            await attempt.close()

    def _journal(self, task: RolloutTask) -> Journal:
        subject = journal_subject(task.run, task.task_index, task.rollout_index)
        return Journal(self._bus if task.durability == "turn" else None, subject)


class _Attempt:
    """The attempts that one delivery of a rollout leads to."""

    def __init__(
        self, task: RolloutTask, agent: Agent, router: Router, journal: Journal, worker: str
    ) -> None:
        self._task = task
        self._journal = journal
        self._agent = agent
        self._router = router
        self._worker = worker
        self._scope = anyio.CancelScope()
        self._budget = Budget()
        self._rollout: Rollout | None = None
        self._started_s = clock.now()

    def cancel(self) -> None:
        """Stop wherever it is; the rollout ends as cancelled."""
        self._scope.cancel()

    async def run(self, before: int) -> RolloutRecord:
        """The record of the first attempt that settles the rollout."""
        attempt = before + 1
        pause_s = 0.1
        with self._scope:
            for attempt in range(before + 1, before + self._task.max_attempts + 1):
                logs.set_rollout(self._task.rollout_id, attempt)
                self._started_s = clock.now()
                self._rollout = None
                try:
                    return await self._once(attempt)
                except Overtaken:
                    raise
                except GymError as error:
                    if not error.retryable or attempt == before + self._task.max_attempts:
                        return self.failed(attempt, error)
                    logger().warning("an attempt failed and is repeated", error=str(error))
                    anew = self._task.durability == "result" or isinstance(
                        error, (SessionLost, JournalMismatch, StaleWeights)
                    )
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
        task = self._task
        with anyio.CancelScope(deadline=anyio.current_time() + task.timeout_s):
            rollout = self._rollout = Rollout(task, attempt, self._router, self._journal, self._budget)
            await self._agent.run(rollout)
            self._check_staleness(rollout)
            verdict = await rollout.verify()
            reason = rollout.truncated
            return self._record(attempt, Truncated(reason=reason) if reason else Completed(), verdict)
        raise DeadlineExceeded(f"the rollout took longer than {task.timeout_s:.0f} s", stage="agent")

    def _check_staleness(self, rollout: Rollout) -> None:
        allowed = self._task.max_staleness
        if allowed is None or not rollout.weight_versions:
            return
        newest = [
            presence.detail.get("weight_version", "")
            for presence in self._router.views["model"].alive()
            if self._task.model in presence.pools
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
        """Let the session be: another attempt has it."""
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

    def _record(self, attempt: int, outcome: Outcome, verdict: Verdict | None) -> RolloutRecord:
        return make_record(
            self._task,
            outcome,
            attempt=attempt,
            rollout=self._rollout,
            verdict=verdict,
            duration_s=clock.now() - self._started_s,
            worker=self._worker,
        )
