"""The agent worker: takes rollouts by credit, runs them, commits each result once.

Each delivery passes the guards (`gym_runtime.workers.guards`), is run, and gets one of four verdicts
(`gym_runtime.workers.fate`): its record is committed, it is given back, dropped or abandoned. A
delivery is acknowledged after its record is stored. A task that lost too many workers in a row, or that
cannot be decoded, is committed as failed: no task is retried without end, and each has a record.

A worker that is stopped gives its tasks back and stores that it did (`gym_runtime.rollout.account`), so that
this does not count as a loss, however often it happens. A worker that ends by itself loses its tasks, like a
killed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

import anyio

from gym_runtime import clock, logs, tracing
from gym_runtime.bus.interface import Bus, Delivery, Incoming
from gym_runtime.bus.pull import Rank, Slots
from gym_runtime.errors import UNREADABLE, Fenced, GymError, RuntimeFault
from gym_runtime.logs import logger
from gym_runtime.messages.metric_names import QUEUE_WAIT
from gym_runtime.messages.names import token
from gym_runtime.messages.outcomes import Cancelled, Failed, RolloutRecord
from gym_runtime.messages.rollout_spec import RolloutSpec, as_taken_up, decode_spec, unread_spec
from gym_runtime.messages.run_control import agent_of
from gym_runtime.rollout.journal import FAILED_TASK
from gym_runtime.rollout.record import refused_record
from gym_runtime.rollout.rollout import Agent
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.ask import NO_WORKER_GRACE_S, UNSERVED_S, Router
from gym_runtime.rpc.lost import Stalls
from gym_runtime.rpc.quarantine import FIRST, Before, RolloutPlace
from gym_runtime.timing import GIVE_BACK_S
from gym_runtime.workers.fate import Abandon, Commit, Drop, Fate, Fates, GiveBack, Verdict
from gym_runtime.workers.guards import ClientPresent, NotEnded, NotSuspect, StoredAlready
from gym_runtime.workers.run_controls import RunControls

NOTE_S = 1.0
"""How often an agent worker looks for rollouts whose time must be noted (`gym_runtime.rollout.account`)."""


class AgentWorker:
    """Runs the rollouts of one or more agents.

    Args:
        worker: this worker's id.
        agents: by name; the worker pulls from the queue of each.
        slots: the most rollouts in flight, over all agents; any agent may use all slots.
        before: the worker that it replaces.
        near: the services of the models and environments that live in this process.

    Attributes:
        serving: it takes tasks.
        meter: its counters.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        worker: str,
        agents: Mapping[str, Agent],
        slots: int,
        before: Before = FIRST,
        near: Sequence[Service] = (),
    ) -> None:
        self.worker, self.slots = worker, slots
        self.serving, self.in_use = False, 0
        self._bus = bus
        # The other half is for rollouts that can go on.
        self._lonely_at_most = (slots + 1) // 2
        self._pull = partial(bus.pull, slots=Slots(slots), handle=self._handle)
        self._agents = dict(agents)
        self._router = Router(bus, own=worker, services=near)
        self.meter = self._router.meter
        self._stalls = Stalls(self._router.waiting, self._router.paces)
        self._fates = Fates()
        self._stored = StoredAlready(bus)
        self._clients = ClientPresent(bus, self._router.members, self._fates)
        self._ended = NotEnded(bus, self._fates)
        self._controls = RunControls(bus, self._agents, self._fates, self._pull)
        self._suspects = NotSuspect(self._router.views["agent"], before)
        self._stop = anyio.Event()
        self._finished = anyio.Event()

    @property
    def stalled(self) -> int:
        """Rollouts that wait unusually long for one answer."""
        return self._stalls.count

    @property
    def suspects(self) -> int:
        """Rollouts that wait for their place after a lost worker (`gym_runtime.rpc.quarantine`)."""
        return self._suspects.waiting

    @property
    def load(self) -> float:
        return self.in_use / self.slots

    def stop(self) -> None:
        """Take no new tasks. If the worker is cancelled after this, it gives back its tasks in flight."""
        self._stop.set()
        self._controls.end()

    async def drain(self) -> None:
        """As `stop`; return when the tasks in flight are finished."""
        self.stop()
        await self._finished.wait()

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Work until drained or cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._router.run)
            tasks.start_soon(self._stalls.watch)
            tasks.start_soon(self._note_time)
            tasks.start_soon(self._clients.watch)
            # Subscribe first, then read: a cancellation between the two is not missed.
            async with self._bus.serve("cancel.>", self._hear):
                await self._ended.load()
                await self._controls.load()
                ready()
                async with anyio.create_task_group() as pulls:
                    pulls.start_soon(self._serve)
                    pulls.start_soon(self._controls.follow, pulls)
                    for name in self._agents:
                        pulls.start_soon(self._pull_tasks, name)
            self._finished.set()
            # The watchers run for ever, and would keep the group open.
            tasks.cancel_scope.cancel()

    async def _serve(self) -> None:
        self.serving = True  # in its own task: agents may keep the group from ending
        try:
            await self._stop.wait()
        finally:
            self.serving = False

    def _hear(self, incoming: Incoming) -> None:
        if incoming.subject.endswith(".control"):
            self._controls.look_again()
        else:
            self._ended.hear(incoming)

    async def _pull_tasks(self, name: str) -> None:
        name = token(name, "agent")
        await self._pull(f"task.{name}.>", consumer=f"agent-{name}", rank=Rank(), stop=self._stop)

    # -- one delivery ---------------------------------------------------------------------------------

    async def _handle(self, delivery: Delivery) -> None:
        try:
            task = self._read(delivery)
        except RuntimeFault as error:
            return await self._settle(delivery, self._refused(delivery, error))
        task, verdict = self._controls.admit(task, delivery)
        verdict = (
            verdict
            or await self._stored.admit(task, delivery.deliveries)
            or await self._clients.admit(task, delivery.subject)
        )
        if verdict is not None:
            return await self._settle(delivery, verdict)
        queued_s = 0.0
        if delivery.deliveries == 1:
            # The broker's clock may be ahead of this machine's.
            queued_s = max(0.0, clock.now() - delivery.stored_s)
            self.meter.observe(QUEUE_WAIT, queued_s, task.environment)
        self.in_use += 1
        try:
            agent = self._agents[task.agent]
            await self._run(
                Fate(task, delivery, agent, self._bus, self._router, worker=self.worker, queued_s=queued_s)
            )
        finally:
            self.in_use -= 1
        return None

    def _read(self, delivery: Delivery) -> RolloutSpec:
        try:
            task = decode_spec(delivery.payload)
        except UNREADABLE as error:
            what = f"the task cannot be read ({error}); use one version of gym-runtime for client and workers"
            raise RuntimeFault(what) from error
        if task.agent not in self._agents:
            raise RuntimeFault(f"this worker does not serve agent '{task.agent}'")
        return task

    def _refused(self, delivery: Delivery, error: RuntimeFault) -> Verdict:
        """The verdict on a task that cannot be run: a failed record, if its identity can be decoded."""
        logger().error("a task is refused", subject=delivery.subject, error=error.message)
        with suppress(*UNREADABLE):
            task = unread_spec(delivery.payload, agent=agent_of(delivery.subject))
            return Commit.of(task, refused_record(task, error, self.worker))
        # Without an identity there is no subject for a record.
        return Drop("it cannot be read")

    async def _run(self, fate: Fate) -> None:
        await fate.load(self._suspects.was_killed)
        place = self._suspects.place(fate)
        # Added before the cancellations are checked, so that a later signal finds the rollout.
        self._fates.add(fate)
        settled = fenced = False
        try:
            logs.set_rollout(fate.task.rollout_id, fate.attempts.number)
            with _span(fate):
                verdict = await self._verdict(fate, place)
                fenced = isinstance(verdict, Abandon)
                if isinstance(verdict, Commit):
                    await self._commit(verdict)
                elif isinstance(verdict, GiveBack):
                    await self._note_given_back(fate)
                # From here on no note may say that the task was given back, even if the broker is away.
                settled = True
                await self._tell(fate.delivery, verdict)
                await self._see_to_sessions(fate, verdict)
        except BaseException as error:
            # A stopped worker gives the task back to the queue. A worker that ends by itself, perhaps because
            # of this rollout, loses it.
            stopped = self._stop.is_set() or not isinstance(error, anyio.get_cancelled_exc_class())
            if stopped and not settled:
                await self._note_given_back(fate)
                if not fate.task.replayable:
                    fate.attempts.leave()  # the next attempt goes on in its session
            raise
        finally:
            place.give_up()
            self._fates.remove(fate)
            fate.account.close()
            # After `close`, because a later note of the time would not be freed.
            await self._ended.free(fate, fenced=fenced)
            await fate.attempts.close()

    def _must_leave(self, task: RolloutSpec) -> bool:
        """Whether no worker serves what a rollout needs, and as many as may wait for one do so."""
        needed = [("resource", task.environment), ("model", task.model)][: 1 if task.candidates else 2]
        return self._router.lonely >= self._lonely_at_most and not all(
            self._router.serves(kind, pool) for kind, pool in needed
        )

    async def _verdict(self, fate: Fate, place: RolloutPlace) -> Verdict:
        """Run the rollout; returns the verdict on its delivery."""
        if self._must_leave(fate.task):
            return _unserved(fate)
        self._ended.begin(fate)
        self._controls.begin(fate)
        refusal = self._suspects.refuse(fate)
        try:
            if refusal is None:
                wait = place.take if place.limited else None
                record = await fate.attempts.run(known=fate.redelivered, wait=wait)
            else:
                record = fate.attempts.failed(refusal)
            _note(record, self.worker)
            await self._keep_failed(fate, record)
            cancelled = isinstance(record.outcome, Cancelled)
            if cancelled and fate.instead is not None:
                return fate.instead
            if (drop := await self._ended.settle(fate)) is not None:
                logger().info("a result is not stored", reason=drop.reason)
                await fate.journal.discard()
                return drop
            if not cancelled:
                # The result of a cancelled rollout is not used.
                await fate.journal.confirm()
        except Fenced as error:
            tracing.fail(type(error).__name__, error.message)
            return Abandon(error.message)
        return Commit.of(fate.task, record)

    async def _keep_failed(self, fate: Fate, record: RolloutRecord) -> None:
        """Keep the task of a failed rollout of a published run, for `Client.retry_failed`."""
        task = fate.task
        if isinstance(record.outcome, Failed) and not (task.attached or task.group or task.candidates):
            await self._bus.append(f"{fate.journal_at}.{FAILED_TASK}", fate.delivery.payload)

    async def _settle(self, delivery: Delivery, verdict: Verdict) -> None:
        """Carry out the verdict on a task that is not run."""
        if isinstance(verdict, Commit):
            await self._commit(verdict)
        await self._tell(delivery, verdict)

    async def _commit(self, verdict: Commit) -> None:
        if not await self._bus.commit(verdict.subject, verdict.stored):
            logger().info("refused a second result", subject=verdict.subject)

    async def _tell(self, delivery: Delivery, verdict: Verdict) -> None:
        match verdict:
            case Commit():
                # If this is lost, the next delivery finds the record.
                await delivery.ack()
            case GiveBack(after_s, own_queue, begun):
                if own_queue is None:
                    await delivery.release(after_s)
                    return
                payload = delivery.payload
                if begun or delivery.deliveries > 1:
                    payload = as_taken_up(payload)
                # Once: it may be there already, and only the acknowledgement was lost.
                await self._bus.enqueue(own_queue, payload, headers=delivery.headers, once=True)
                await delivery.ack()
            case Drop():
                await delivery.ack()
            case Abandon(reason):
                logger().info("this attempt stops", reason=reason)
                delivery.abandon()

    async def _see_to_sessions(self, fate: Fate, verdict: Verdict) -> None:
        """Close the sessions of earlier attempts, or leave this attempt's session to the next attempt."""
        task = fate.task
        if isinstance(verdict, Commit) and fate.delivery.deliveries > 1:
            # An attempt whose worker died may have left a session unknown to this attempt.
            await self._bus.publish(
                f"over.{token(task.environment, 'environment')}", task.rollout_id.encode()
            )
        if isinstance(verdict, GiveBack) and not task.replayable:
            fate.attempts.leave()  # the next attempt goes on in it
        # A missing journal may also mean that the run is over: then no other attempt will close the session.
        if isinstance(verdict, Abandon) and not await self._ended.surely_over(task.run):
            fate.attempts.leave()

    async def _note_given_back(self, fate: Fate) -> None:
        """Store that this worker gives the task back; otherwise the next delivery would count a loss."""
        try:
            # Shielded: the note matters most when the worker is being stopped.
            with anyio.move_on_after(GIVE_BACK_S, shield=True):
                await fate.account.give_back()
        except GymError as error:
            logger().info("a task was given back without a note of it", error=str(error))

    async def _note_time(self) -> None:
        """Store from time to time how long the attempts have taken; free slots where too many wait."""
        while True:
            await anyio.sleep(NOTE_S)
            excess = self._router.lonely - self._lonely_at_most
            for fate in reversed([*self._fates]):
                # They began at once, when none waited yet. The last ones, so that the first ones can fail.
                if excess > 0 and not fate.attempts.stopped and self._must_leave(fate.task):
                    excess -= 1
                    fate.stop(_unserved(fate))
                if not fate.account.due:
                    continue
                try:
                    await fate.account.note(working=True)
                except GymError as error:
                    logger().info("the time of a rollout was not stored", error=str(error))


def _unserved(fate: Fate) -> GiveBack:
    """Deliver it again later, each time later than before: thousands may wait so."""
    return GiveBack(min(NO_WORKER_GRACE_S, UNSERVED_S * fate.delivery.deliveries))


def _span(fate: Fate) -> AbstractContextManager[None]:
    """The span of a delivered rollout; a child of the context in which it was published."""
    if not tracing.enabled():
        return nullcontext()
    task = fate.task
    about: tracing.Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": task.environment,
        "gen_ai.conversation.id": task.rollout_id,
        "gym.agent": task.agent,
        "gym.environment": task.environment,
        "gym.model": task.model,
        "gym.run": task.run,
        "gym.task_index": task.task_index,
        "gym.rollout_index": task.rollout_index,
    }
    return tracing.span(f"invoke_agent {task.environment}", about, parent=fate.delivery.headers)


def _note(record: RolloutRecord, worker: str) -> None:
    """Set the span's attributes at the end of a rollout; a failed rollout is an error."""
    if not tracing.recording():
        return
    outcome = record.outcome
    numbers = record.numbers
    tracing.note(
        {
            "gym.worker": worker,
            "gym.attempt": record.attempt,
            "gym.outcome": type(outcome).__name__.lower(),
            "gym.turns": record.turns,
            "gym.tool_calls": record.tool_calls,
            "gen_ai.usage.input_tokens": int(numbers.get("input_tokens", 0)),
            "gen_ai.usage.output_tokens": int(numbers.get("output_tokens", 0)),
            **({} if record.reward is None else {"gym.reward": record.reward}),
        }
    )
    if isinstance(outcome, Failed):
        tracing.note({"gym.stage": outcome.fault.stage})
        tracing.fail(outcome.fault.name, outcome.fault.message)
