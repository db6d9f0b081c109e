"""Runs that users control while they go on (`gym_runtime.messages.run_control`), as an agent worker obeys.

The worker pulls the own queue of each such run, unless the run is paused. A rollout of a paused run stops at
its next turn, before the model is asked: its turns are in the journal, and it goes back to the run's queue.
A rollout without a journal, or of an agent whose turns are not journaled, is finished.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable

import anyio
from anyio.abc import TaskGroup

from gym_runtime.bus.interface import Bus, Delivery
from gym_runtime.bus.pull import Rank
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_control import CONTROLS, RunControl, is_own, own_queue, own_subject
from gym_runtime.workers.fate import Fate, Fates, GiveBack, Verdict
from gym_runtime.workers.guards import is_over

LOOK_S = 10.0
"""How often the stored controls are read, if a signal was missed."""

Pull = Callable[..., Awaitable[None]]
"""`Bus.pull` with the worker's slots."""


class RunControls:
    """The controls of all runs.

    Args:
        agents: that this worker has.
    """

    def __init__(self, bus: Bus, agents: Iterable[str], fates: Fates, pull: Pull) -> None:
        self._bus, self._agents, self._fates, self._pull = bus, list(agents), fates, pull
        self._known: dict[str, RunControl] = {}
        self._pulls: dict[str, anyio.Event] = {}
        self._ranks: dict[str, Rank] = {}
        self._over: set[str] = set()
        self._changed = anyio.Event()
        self._ended = False

    def look_again(self) -> None:
        """A control has changed."""
        self._changed.set()

    def end(self) -> None:
        """Pull from no queue any more."""
        self._ended = True
        for stop in self._pulls.values():
            stop.set()
        self._changed.set()

    async def follow(self, tasks: TaskGroup) -> None:
        """Obey the controls until the end; pulls run in ``tasks``."""
        while not self._ended:
            self._changed = anyio.Event()
            try:
                await self.load()
            except GymError as error:
                logger().info("the controls of runs could not be read", error=str(error))
            self._obey(tasks)
            over = self._over
            # All workers learn of a run's end at once; the first that looks again closes its queues.
            with anyio.move_on_after(LOOK_S * random.uniform(0.5, 1.0)):
                await self._changed.wait()
            self._over = set()
            await self._close(over)

    async def load(self) -> None:
        """Read the controls of the runs that go on."""
        found: dict[str, RunControl] = {}
        for control in CONTROLS.read_all(await self._bus.latest("runs.*.control")):
            # The client of another version does not free it with its run.
            if control == self._known.get(control.run) or not await is_over(self._bus, control.run):
                found[control.run] = control
        before, self._known = self._known, found
        self._over |= before.keys() - found.keys()
        self._ranks = {run: self._ranks.get(run, Rank()) for run in found}
        for run, control in found.items():
            rank = self._ranks[run]
            rank.share, rank.priority = control.share or 1.0, control.priority or 0
            rank.most = control.concurrency or 0
            if control.concurrency != before.get(run, control).concurrency:
                for agent in self._agents:
                    subject, consumer = own_queue(run, agent)
                    await self._bus.open_queue(subject, consumer=consumer, most=control.concurrency or 0)

    async def _close(self, over: set[str]) -> None:
        for run in over - self._known.keys():
            for agent in self._agents:
                subject, consumer = own_queue(run, agent)
                try:
                    await self._bus.close_queue(subject, consumer=consumer)
                except GymError as error:
                    logger().info("the queue of a run that is over is kept for a day", error=str(error))

    def _obey(self, tasks: TaskGroup) -> None:
        for run in [*self._pulls]:
            control = self._known.get(run)
            if control is None or control.paused:
                self._pulls.pop(run).set()
        for run, control in self._known.items():
            for fate in self._fates.of(run):
                self.begin(fate)
            if not control.paused and not self._ended and run not in self._pulls:
                stop = self._pulls[run] = anyio.Event()
                for agent in self._agents:
                    tasks.start_soon(self._work, run, agent, control.concurrency or 0, self._ranks[run], stop)

    async def _work(self, run: str, agent: str, most: int, rank: Rank, stop: anyio.Event) -> None:
        try:
            subject, consumer = own_queue(run, agent)
            await self._pull(subject, consumer=consumer, most=most, rank=rank, stop=stop)
        except GymError as error:
            if not stop.is_set():
                logger().warning("the queue of a run is not served", run=run, error=str(error))
                self._pulls.pop(run, anyio.Event()).set()  # it is tried again at the next look

    def admit(self, task: RolloutSpec, delivery: Delivery) -> tuple[RolloutSpec, Verdict | None]:
        """A rollout with the limits that are set for its run, and the verdict on it; None to run it."""
        control = self._known.get(task.run)
        if control is None or task.candidates:
            return task, None
        if not is_own(delivery.subject):
            return task, GiveBack(to=own_subject(task))
        # One that was on its way when the run was paused stops at its first turn.
        return control.applied(task), None

    def begin(self, fate: Fate) -> None:
        """Have a rollout stop at its next turn if its run is paused, or go on if it is not."""
        control = self._known.get(fate.task.run)
        if control is not None and not fate.task.candidates:
            fate.park(at_turn=control.paused)
