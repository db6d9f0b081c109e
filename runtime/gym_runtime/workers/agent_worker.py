"""The agent worker: pulls rollouts by credit, runs them, commits each result once.

A delivery is acked after its record is committed (or found to be committed already). A task that lost too
many workers in a row (`workers.suspect_places`), or that cannot be decoded, is committed as failed: no task
is retried without end, and each has a record. While the client of an attached run is gone, its tasks go back
to the queue. A worker that is stopped and gives a task back stores that (`rollout.account`), so that it does
not count as a loss, however often it happens. One that ends by itself loses its tasks, as one that is killed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio

from gym_runtime import clock, logs
from gym_runtime.bus.interface import Bus, Delivery, Incoming
from gym_runtime.bus.slots import Slots
from gym_runtime.errors import UNREADABLE, Fenced, GymError, RuntimeFault
from gym_runtime.logs import logger
from gym_runtime.messages.metric_names import QUEUE_WAIT
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.outcomes import Cancelled, RolloutRecord, encode_record
from gym_runtime.messages.rollout_spec import RolloutSpec, decode_spec, unread_spec
from gym_runtime.messages.stored_records import CLOSED
from gym_runtime.rollout.account import Account
from gym_runtime.rollout.agent import Agent
from gym_runtime.rollout.attempt import Attempts
from gym_runtime.rollout.journal import Journal, journal_subject
from gym_runtime.rollout.result_row import refused_record
from gym_runtime.rpc.router import Router
from gym_runtime.rpc.stalls import Stalls
from gym_runtime.timing import CLIENT_DROPPED_S, CLIENT_RETURN_S, GIVE_BACK_S
from gym_runtime.workers import rollout_span
from gym_runtime.workers.cancellations import Cancellations
from gym_runtime.workers.client_watch import ClientWatch
from gym_runtime.workers.closed_runs import ClosedRuns
from gym_runtime.workers.suspect_places import MAX_KILLED, MAX_LOSSES, SuspectPlace, SuspectPlaces

NOTE_S = 1.0
"""How often an agent worker looks for rollouts whose time must be noted (`gym_runtime.rollout.account`)."""


class AgentWorker:
    """Runs the rollouts of one or more agents.

    Args:
        worker: this worker's id.
        agents: by name; the worker pulls from the queue of each.
        slots: rollouts in flight at most, over all agents; any of them may use all.
        crashed: the worker whose place it takes, if that one crashed.

    Attributes:
        serving: it takes tasks.
        meter: what it has counted.
    """

    def __init__(
        self, bus: Bus, *, worker: str, agents: Mapping[str, Agent], slots: int, crashed: str = ""
    ) -> None:
        self.worker, self.slots = worker, slots
        self.serving, self.in_use = False, 0
        self._slots = Slots(slots)
        self._bus = bus
        self._crashed = crashed
        self._agents = dict(agents)
        self._router = Router(bus, own=worker)
        self.meter = self._router.meter
        self._running: dict[str, dict[str, Attempts]] = {}
        self._cancellations = Cancellations()
        self._closed = ClosedRuns(bus, self._cancellations)
        self._clients = ClientWatch(bus, self._router.members)
        self._stalls = Stalls(self._router)
        self._turns = SuspectPlaces()
        self._stop = anyio.Event()
        self._finished = anyio.Event()

    @property
    def stalled(self) -> int:
        """Rollouts that wait unusually long for one answer."""
        return self._stalls.count

    @property
    def load(self) -> float:
        return self.in_use / self.slots

    def stop(self) -> None:
        """Take no new tasks. Those in flight are given back, not lost, when it is cancelled after this."""
        self._stop.set()

    async def drain(self) -> None:
        """As `stop`; return when those in flight are finished."""
        self.stop()
        await self._finished.wait()

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Work until drained or cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._router.run)
            tasks.start_soon(self._stalls.watch)
            tasks.start_soon(self._note_time)
            tasks.start_soon(self._clients.watch, self._attached, self._suspend)
            # Heard first, read then: a cancellation between the two is not missed.
            async with self._bus.serve("cancel.>", self._cancel):
                await self._cancellations.load(self._bus)
                ready()
                async with anyio.create_task_group() as pulls:
                    pulls.start_soon(self._serve)
                    for name in self._agents:
                        pulls.start_soon(self._pull, name)
            self._finished.set()
            # The watchers run for ever, and would keep the group.
            tasks.cancel_scope.cancel()

    async def _serve(self) -> None:
        self.serving = True  # in a task of its own: agents may keep the group from ending
        try:
            await self._stop.wait()
        finally:
            self.serving = False

    async def _pull(self, name: str) -> None:
        await self._bus.pull(
            f"task.{token(name, 'agent')}.>",
            consumer=f"agent-{token(name, 'agent')}",
            slots=self._slots,
            handle=self._handle,
            stop=self._stop,
        )

    def _cancel(self, incoming: Incoming) -> None:
        """``cancel.<run>`` or ``cancel.<run>.<task_index>[.<rollout_index>]``."""
        _, run, *rest = incoming.subject.split(".")
        prefix = ".".join([run, *rest])
        if incoming.payload == CLOSED:
            self._cancellations.close(run)
        else:
            self._cancellations.add(prefix)
        for rollout_id, attempts in list(self._running.get(run, {}).items()):
            # With the dots: a cancellation of task 1 must not cover task 10.
            if f"{rollout_id}.".startswith(f"{prefix}."):
                attempts.cancel()

    def _attached(self) -> list[str]:
        """The attached runs in progress: each needs its client."""
        # All rollouts of a run are attached, or none is.
        return [run for run, rollouts in self._running.items() if next(iter(rollouts.values())).task.attached]

    def _suspend(self, run: str) -> None:
        logger().warning("the client of a run is gone; its rollouts stop", run=run)
        for attempts in list(self._running.get(run, {}).values()):
            attempts.suspend()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            task = decode_spec(delivery.payload)
        except UNREADABLE as error:
            what = f"the task cannot be read ({error}); use one version of gym-runtime for client and workers"
            return await self._refuse(delivery, what)
        if task.agent not in self._agents:
            return await self._refuse(delivery, f"this worker does not serve agent '{task.agent}'")
        subject = f"rollout.{rollout_token(task.rollout_id)}"
        # A collector that is behind may have published a comparison whose result is there.
        known = delivery.deliveries > 1 or task.taken_up or bool(task.candidates)
        if known and (await self._bus.latest(subject) or await self._closed.over(task.run)):
            return await delivery.ack()
        if task.attached and not await self._clients.here(task.run):
            # Its client has left for good, so that nothing waits for the result.
            if self._clients.gone_s(task.run) > CLIENT_DROPPED_S:
                return await delivery.ack()
            return await delivery.release(CLIENT_RETURN_S)
        waited_s = 0.0
        if delivery.deliveries == 1:
            # The broker's clock may be ahead of this machine's.
            waited_s = max(0.0, clock.now() - delivery.stored_s)
            self.meter.observe(QUEUE_WAIT, waited_s, task.environment)
        self.in_use += 1
        try:
            await self._run(task, delivery, subject, waited_s)
        finally:
            self.in_use -= 1
        return None

    async def _refuse(self, delivery: Delivery, what: str) -> None:
        """Settle a task that cannot be run: commit its rollout as failed, if its identity can be decoded."""
        logger().error("a task is refused", subject=delivery.subject, error=what)
        # A task without a readable identity has no subject for a record; nothing is left but to remove it.
        with suppress(*UNREADABLE):
            task = unread_spec(delivery.payload, agent=delivery.subject.split(".")[1])
            record = refused_record(task, RuntimeFault(what), self.worker)
            await self._bus.commit(f"rollout.{rollout_token(task.rollout_id)}", encode_record(record))
        await delivery.ack()

    async def _run(self, task: RolloutSpec, delivery: Delivery, subject: str, queued_s: float) -> None:
        journal_at = journal_subject(task.run, task.task_index, task.rollout_index)
        journal = Journal(self._bus if task.durability == "turn" else None, journal_at)
        account = Account(
            self._bus,
            journal_at,
            task.timeout_s,
            queued_s,
            worker=self.worker,
            rollouts=max(1, len(task.candidates)),
        )
        known = delivery.deliveries > 1 or task.taken_up
        if known:
            await journal.load()
            await account.load(turns=journal.length, delivered_before=delivery.deliveries > 1)
        turn = self._turns.turn(account.spent.losses)
        if account.spent.cleared_by_turns:
            journal.on_turn = turn.give_up
        attempts = Attempts(task, self._agents[task.agent], self._router, journal, account, self.worker)
        siblings = self._running.setdefault(task.run, {})
        # Before the cancellations are looked at: a signal that comes later finds the attempts here.
        rollout_id = task.rollout_id
        siblings[rollout_id] = attempts
        since_s = clock.monotonic()
        has_it = True
        try:
            logs.set_rollout(rollout_id, attempts.number)
            with rollout_span.span(task, delivery):
                if self._cancellations.cover(task):
                    attempts.cancel()
                record = await self._made(attempts, turn, known=known)
                rollout_span.note(record, self.worker)
                cancelled = isinstance(record.outcome, Cancelled)
                if attempts.detached and cancelled:
                    await self._note_given_back(attempts)
                    # The note says that it is given back; a second one would count it twice.
                    has_it = False
                    return await delivery.release(CLIENT_RETURN_S)
                if await self._closed.closed(task.run, since_s):
                    logger().info("the run is closed; a result is not stored")
                    has_it = False
                    await journal.discard()
                    return await delivery.ack()
                if not cancelled:
                    # A cancelled rollout needs no check: nothing of it is used.
                    await journal.confirm()
                stored = encode_record(record)
                # Its row may be large, and is in ``stored``.
                del record
                if not await self._bus.commit(subject, stored):
                    logger().info("refused a second result", attempt=attempts.number)
            has_it = False  # the result is stored; if the ack is lost, the next delivery finds it and acks
            await delivery.ack()
            if delivery.deliveries > 1:
                # An attempt whose worker died may have left a session that this attempt does not know.
                await self._bus.publish(f"over.{token(task.environment, 'environment')}", rollout_id.encode())
        except Fenced as error:
            has_it = False
            logger().info("this attempt stops", reason=str(error))
            delivery.abandon()
            # A journal is deleted when its run is over, too: then no other attempt will close the session.
            if not await self._closed.surely_over(task.run):
                attempts.leave()
            # Nor will the run's client free what this attempt has stored since, however young it is.
            since_s = -math.inf
        except anyio.get_cancelled_exc_class():
            # Else the worker ends by itself, perhaps because of this rollout: that is a loss.
            has_it = has_it and self._stop.is_set()
            raise
        finally:
            turn.give_up()
            # A second delivery of the rollout may have taken the place.
            if siblings.get(rollout_id) is attempts:
                del siblings[rollout_id]
            if not siblings:
                self._running.pop(task.run, None)
            # An error or a cancellation from outside: the queue gets the task back.
            if has_it:
                await self._note_given_back(attempts)
            account.close()
            # After `close`: a note of the time that came later would not be freed.
            await self._closed.free(task.run, journal_at, account, since_s)
            await attempts.close()
            self._router.settle(rollout_id)
        return None

    async def _made(self, attempts: Attempts, turn: SuspectPlace, *, known: bool) -> RolloutRecord:
        losses = attempts.account.spent.losses
        if losses >= MAX_KILLED or (losses >= MAX_LOSSES and self._has_crashed(attempts.account.lost_worker)):
            return attempts.failed(
                RuntimeFault(
                    f"{losses} agent workers in a row were lost while they worked on this rollout, and at "
                    "the last one no other rollout was new; see their logs"
                )
            )
        return await attempts.run(known=known, wait=turn.take if turn.limited else None)

    def _has_crashed(self, worker: str) -> bool:
        """Whether a lost agent worker crashed, as far as its successor has said so."""
        known = {self._crashed, *(one.crashed for one in self._router.views["agent"].alive())}
        return bool(worker) and worker in known

    async def _note_given_back(self, attempts: Attempts) -> None:
        """Store that this worker gives the task back; otherwise the next delivery would count a loss."""
        try:
            # Shielded: it matters most when the worker is being stopped.
            with anyio.move_on_after(GIVE_BACK_S, shield=True):
                await attempts.account.give_back()
        except GymError as error:
            logger().info("a task was given back without a note of it", error=str(error))

    async def _note_time(self) -> None:
        """Store from time to time how long the attempts have taken."""
        while True:
            await anyio.sleep(NOTE_S)
            # A list: rollouts come and go while the notes are stored.
            due = [one for run in self._running.values() for one in run.values() if one.account.due]
            for attempts in due:
                try:
                    await attempts.account.note(working=True)
                except GymError as error:
                    logger().info("the time of a rollout was not stored", error=str(error))
