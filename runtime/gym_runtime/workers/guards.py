"""Guards keep a rollout from running, or stop it: each knows one reason, and gives the verdict.

==================  ===========================================================================
`StoredAlready`     before: its result is stored, or its run is over
`ClientPresent`     before and during: the client of its run, which alone wants the result, is gone
`NotEnded`          during and after: it is cancelled, or its run is closed
`NotSuspect`        before: it may have ended its earlier workers (`gym_runtime.rpc.quarantine`)
==================  ===========================================================================
"""

from __future__ import annotations

from contextlib import suppress

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.errors import UNREADABLE, GymError, NoWorker, RuntimeFault
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_control import is_own, own_subject
from gym_runtime.messages.stored_records import CLOSED, RUNS, RunInfo, read_asked
from gym_runtime.rpc.members import decode_heartbeat
from gym_runtime.rpc.quarantine import MAX_CRASHES, MAX_KILLS, Before, RolloutPlace, RolloutPlaces
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.rpc.watch import Members
from gym_runtime.timing import (
    CLIENT_DROPPED_S,
    CLIENT_RETURN_S,
    GIVE_BACK_S,
    JOURNAL_FRESH_S,
    MEMBER_ANSWER_S,
)
from gym_runtime.workers.fate import Drop, Fate, Fates, GiveBack, Verdict, record_subject

REMEMBERED = 65536
"""A worker remembers so many of the newest cancellations, and so many of the newest closed runs."""


async def run_info(bus: Bus, run: str) -> RunInfo | None:
    """The stored information about a run."""
    found = await bus.latest(f"runs.{token(run, 'run')}")
    return RUNS.read(found[0]) if found else None


async def is_over(bus: Bus, run: str) -> bool:
    """Whether a run has ended, so that its records may be deleted."""
    info = await run_info(bus, run)
    return info is not None and info.state != "active"


class StoredAlready:
    """A rollout is not run again once its result is stored."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def admit(self, task: RolloutSpec, deliveries: int) -> Verdict | None:
        """The verdict on a rollout that need not be run; None to run it."""
        # A collector that is behind may publish a comparison a second time.
        if deliveries == 1 and not task.taken_up and not task.candidates:
            return None
        if await self._bus.latest(record_subject(task)):
            return Drop("its result is stored")
        return Drop("its run is over") if await is_over(self._bus, task.run) else None


class ClientPresent:
    """Rollouts of an attached run need the run's client.

    The client is a member of the system for as long as the run lasts (`gym_runtime.rpc.watch`). When its
    process ends, for any reason, the broker tells its watcher that the client does not listen, and the
    watcher declares it gone. The run's rollouts then go back to the queue, so a client that only had to
    reconnect loses only some repeated work. After `CLIENT_DROPPED_S` without the client, they go to the run's
    own queue, where they cost nothing: workers serve it when a client that returns asks them to
    (`gym_runtime.client.runs`, `Runs.serve_parked`), and it is deleted with the run.
    """

    def __init__(self, bus: Bus, members: Members, fates: Fates) -> None:
        self._bus = bus
        self._members = members
        self._clients = members.views["client"]
        self._fates = fates
        self._gone_since_s: dict[str, float] = {}

    async def admit(self, task: RolloutSpec, subject: str) -> Verdict | None:
        """The verdict on a rollout, delivered under this subject, without a client; None to run it."""
        if not task.attached or await self._here(task.run):
            return None
        if clock.monotonic() - self._gone_since_s[task.run] <= CLIENT_DROPPED_S:
            return GiveBack(CLIENT_RETURN_S)
        # The own queue of a run that has a control is served anyway.
        return GiveBack(CLIENT_DROPPED_S) if is_own(subject) else GiveBack(to=own_subject(task))

    async def watch(self) -> None:
        """Stop the rollouts of clients that go, until cancelled."""
        while True:
            # Taken before the check, so that a change during the check is not missed.
            change = self._clients.change()
            for run in [run for run in self._gone_since_s if self._clients.knows(run)]:
                del self._gone_since_s[run]  # it is back, and its next absence begins at 0
            for run in self._fates.attached():
                # A client that ends its run has stopped them already, and leaves while they end.
                going_on = [fate for fate in self._fates.of(run) if not fate.attempts.stopped]
                if going_on and not await self._here(run):
                    logger().warning("the client of a run is gone; its rollouts stop", run=run)
                    for fate in going_on:
                        fate.stop(GiveBack(CLIENT_RETURN_S))
            await change.wait()

    async def _here(self, run: str) -> bool:
        # An unknown client is asked: its announcement may not have arrived yet.
        if not self._clients.knows(run) and not await self._answers(run):
            # `setdefault`: the time counts from the first time that the client was missed.
            self._gone_since_s.setdefault(run, clock.monotonic())
            return False
        self._gone_since_s.pop(run, None)
        return True

    async def _answers(self, run: str) -> bool:
        """Whether the client may be alive: False only if the broker reports that it does not listen."""
        try:
            name = token(run, "run")
            deadline_s = clock.monotonic() + MEMBER_ANSWER_S
            data = await self._bus.request(f"alive.client.{name}", b"", deadline_s=deadline_s)
            self._members.learn(decode_heartbeat(data))
        except NoWorker:
            return False
        except (GymError, *UNREADABLE):
            # On silence it counts as alive: the client may block its loop, or our own connection may fail.
            pass
        return True


class NotEnded:
    """Cancelled rollouts stop; for closed runs nothing more is stored.

    A cancellation is a signal, ``cancel.<run>[.<task>[.<rollout>]]``, and is stored with the run
    (``runs.<run>.cancelled.<task>[.<rollout>]``, or the run's state), where a new worker finds it. The same
    signal says that a run is closed. A worker that was frozen or cut off may miss it, so an attempt that took
    long asks the broker.
    """

    def __init__(self, bus: Bus, fates: Fates) -> None:
        self._bus = bus
        self._fates = fates
        # Dicts as ordered sets, from which the oldest is dropped.
        self._cancelled: dict[str, None] = {}
        self._closed: dict[str, None] = {}

    async def load(self) -> None:
        """Read the stored cancellations."""
        for run in RUNS.read_all(await self._bus.latest("runs.*")):
            if run.state == "cancelled":
                _remember(self._cancelled, run.run)
            if run.closed:
                _remember(self._closed, run.run)
        for record in await self._bus.latest("runs.*.cancelled.>"):
            _, run, _, *rest = record.subject.split(".")
            _remember(self._cancelled, ".".join([run, *rest]))

    def hear(self, incoming: Incoming) -> None:
        """A signal: remember it, and stop the rollouts that it covers."""
        prefix = incoming.subject.partition(".")[2]
        run = prefix.partition(".")[0]
        if incoming.payload == CLOSED:
            # A run of the same name may be opened later, so this only says where to look.
            _remember(self._closed, run)
        else:
            _remember(self._cancelled, prefix)
        # With the dots: a cancellation of task 1 must not cover task 10.
        stopped = [
            fate for fate in self._fates.of(run) if f"{fate.task.rollout_id}.".startswith(f"{prefix}.")
        ]
        # Also where nothing is stopped: what waits here in a queue is dropped later, without a line.
        if by := read_asked(incoming.payload).by:
            logger().warning("rollouts are cancelled", what=prefix, by=by, in_flight=len(stopped))
        for fate in stopped:
            fate.stop()

    def begin(self, fate: Fate) -> None:
        """Stop a rollout that was cancelled before it begins here."""
        task, known = fate.task, self._cancelled
        # Three look-ups, however many cancellations there are.
        if known and (task.run in known or task.group_id in known or task.rollout_id in known):
            fate.stop()

    async def settle(self, fate: Fate) -> Drop | None:
        """The verdict on a rollout whose run was closed meanwhile; None to store its record."""
        if not self._may_be_closed(fate):
            return None
        info = await run_info(self._bus, fate.task.run)
        return Drop("its run is closed") if info is not None and info.closed else None

    async def surely_over(self, run: str) -> bool:
        """Whether a run has ended; False if the broker does not answer."""
        with suppress(GymError):
            return await is_over(self._bus, run)
        return False

    async def free(self, fate: Fate, *, fenced: bool) -> None:
        """Delete what a delivery stored after its run was closed, when this worker was cut off or frozen.

        ``fenced``: the run's client does not delete it, however short the attempt was.
        """
        # A note may have reached the broker after the run was closed, however short the attempt was.
        if not fenced and not fate.account.noted and not self._may_be_closed(fate):
            return
        try:
            with anyio.move_on_after(GIVE_BACK_S, shield=True):
                # A note that is still on its way would be stored after everything was deleted.
                await fate.account.settled()
                info = await run_info(self._bus, fate.task.run)
                if info is not None and info.closed:
                    # A pattern with `>` does not cover the subject before it.
                    for pattern in (fate.journal_at, f"{fate.journal_at}.>"):
                        await self._bus.forget(pattern)
        except GymError as error:
            logger().info("what was stored for a closed run was not freed", error=str(error))

    def _may_be_closed(self, fate: Fate) -> bool:
        # Few attempts ask the broker: most are short, and hear the signal.
        return fate.task.run in self._closed or clock.monotonic() >= fate.began_s + JOURNAL_FRESH_S


class NotSuspect:
    """A rollout that lost workers waits for its place; one that ended too many fails.

    Args:
        agents: the agent workers that are alive.
        before: the worker that this worker replaces.
    """

    def __init__(self, agents: WorkerRegistry, before: Before) -> None:
        self._agents = agents
        self._before = before
        self._places = RolloutPlaces()

    @property
    def waiting(self) -> int:
        """How many rollouts wait for their place."""
        return self._places.waiting

    def place(self, fate: Fate) -> RolloutPlace:
        """The rollout's place; storing a turn gives it up, if the turn clears the rollout."""
        spent = fate.account.spent
        place = self._places.place(spent.losses)
        if spent.cleared_by_turns:
            fate.journal.on_turn = place.give_up
        return place

    def refuse(self, fate: Fate) -> GymError | None:
        """Why the rollout has failed without another attempt; None to run it."""
        losses = fate.account.spent.losses
        if losses >= MAX_KILLS or (losses >= MAX_CRASHES and self._has_crashed(fate.account.lost_worker)):
            return RuntimeFault(
                f"{losses} agent workers in a row were lost while they worked on this rollout, and at "
                "the last one no other rollout was new; see their logs"
            )
        return None

    def _has_crashed(self, worker: str) -> bool:
        """Whether a lost agent worker crashed, according to its successor."""
        return bool(worker) and any(worker == one.crashed for one in (self._before, *self._agents.alive()))

    def was_killed(self, worker: str) -> bool:
        """Whether a lost agent worker was ended from outside, according to its successor."""
        return bool(worker) and any(worker == one.killed for one in (self._before, *self._agents.alive()))


def _remember(names: dict[str, None], name: str) -> None:
    names[name] = None
    while len(names) > REMEMBERED:
        del names[next(iter(names))]
