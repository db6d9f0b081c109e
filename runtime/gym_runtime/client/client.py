"""`Client`: all that a trainer needs of a running system."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from types import TracebackType
from typing import NamedTuple, Self

from anyio.abc import TaskGroup

from gym_runtime.bus.interface import Bus
from gym_runtime.client import weights
from gym_runtime.client.control import control
from gym_runtime.client.lifetime import Lifetime
from gym_runtime.client.new_runs import POLICY
from gym_runtime.client.progress import look, queues
from gym_runtime.client.rollouts import Rollouts
from gym_runtime.client.status import RunProgress, Status
from gym_runtime.errors import NotThereYet, UsageError
from gym_runtime.messages import calls
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.rpc.members import Heartbeat, drain, fresh, named
from gym_runtime.workers.adapter import ModelSettings
from gym_runtime.workers.current_weights import stored

CONTROL_S = 600.0
"""How long a command to model workers, such as new weights, may take by default."""


class Joined(NamedTuple):
    """A connection to a system.

    Attributes:
        urls: the broker's.
        tasks: lasts as long as the connection.
        served: the model that was started as the pool ``policy``, if one was.
    """

    urls: Sequence[str]
    bus: Bus
    tasks: TaskGroup
    served: ModelSettings | None = None


Joining = Callable[[], AbstractAsyncContextManager[Joined]]


class Client(Rollouts):
    """A connection to a running system. Made by `connect`.

    It is open within ``async with``; or from `open` to `close`, which may be called by different tasks, such
    as the cells of a notebook. It may be opened again.

    Args:
        roles: which pool serves which role, where the settings of rollouts do not say.
        joining: connects the client for as long as the context lasts.
        prefix: of the system's subjects.

    Attributes:
        urls: the broker's, while the client is open.
    """

    urls: tuple[str, ...] = ()

    def __init__(
        self,
        bus: Bus | None = None,
        tasks: TaskGroup | None = None,
        roles: Mapping[str, str] | None = None,
        *,
        joining: Joining | None = None,
        prefix: str = "gym",
    ) -> None:
        super().__init__(bus, tasks, roles)
        self.prefix = prefix
        self._joining = joining
        self._entered: AbstractAsyncContextManager[None] | None = None
        self._lifetime: Lifetime | None = None

    async def __aenter__(self) -> Self:
        self._entered = self._join()
        await self._entered.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # Before the exit, so that the client can be opened again whatever that raises.
        entered, self._entered = self._entered, None
        return None if entered is None else await entered.__aexit__(kind, error, trace)

    async def open(self) -> Self:
        """Connect; returns the client. Use this where no ``async with`` can stand around its uses.

        Raises:
            UsageError, BrokerError: the message says what is missing.
        """
        if self._lifetime is not None:
            raise UsageError("the client is open already")
        self._lifetime = Lifetime(self._join())
        try:
            await self._lifetime.open()
        # Also for a cancellation: the client is not open, and may be opened again.
        except BaseException:
            self._lifetime = None
            raise
        return self

    async def close(self) -> None:
        """Leave the system, and stop it if this client started it.

        Raises:
            GymError: what broke the connection, if it broke.
        """
        lifetime, self._lifetime = self._lifetime, None
        if lifetime is not None:
            await lifetime.close()

    @asynccontextmanager
    async def _join(self) -> AsyncGenerator[None]:
        if self._joining is None or self.driver.connected:
            raise UsageError("the client is open already; connect(...) makes another one")
        async with self._joining() as joined:
            self.urls, self.served = tuple(joined.urls), joined.served
            self.driver.connect(joined.bus, joined.tasks)
            try:
                yield
            finally:
                self.driver.connect(None, None)
                # They hold the old connection; the next one makes its own.
                self._router = self._environments = None

    # -- runs -----------------------------------------------------------------------------------------

    async def run(self, run: str) -> RunInfo:
        """What is known of a run.

        Raises:
            UsageError: there is no such run, or this cannot be the name of one.
        """
        return await self.driver.run(run)

    async def runs(self) -> list[RunInfo]:
        """All runs that the broker remembers, oldest first."""
        return await self.driver.runs()

    async def cancel(self, run: str, task_index: int | None = None, rollout_index: int | None = None) -> None:
        """Stop a run, one of its groups, or one rollout: what is waiting is dropped, what runs is stopped.

        Raises:
            UsageError: there is no such run, or a rollout is named without its task.
        """
        await self.driver.cancel(run, task_index, rollout_index)

    def collect(self, run: str) -> AsyncGenerator[RolloutRecord]:
        """The records of a run that was published elsewhere, until it is finished or cancelled.

        They stay at the broker until the run is over; the last client that follows the run then frees them.

        Raises:
            UsageError: there is no such run, or it is over and not all of its records are stored any more.
        """
        return self.driver.collect(run)

    # -- looking around -------------------------------------------------------------------------------

    async def control(
        self, command: calls.Control, *, model: str = "policy", limit_s: float = CONTROL_S
    ) -> dict[str, calls.ControlAnswer]:
        """Pause, resume or change the weights of a model, on all of its workers at once; no rollout ends.

        Returns each worker's answer, by the worker's id.

        Raises:
            UsageError: no worker serves the model.
            ModelRefused: an engine cannot do it.
            GymError: a worker did not answer within ``limit_s`` seconds, or its engine failed.
        """
        async with stored(self.driver.bus, model, command):
            return await control(self.driver.bus, await self._serving(model)(), command, limit_s=limit_s)

    async def update_weights(
        self, path: str | PathLike[str], version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> None:
        """Have all engines of a model load weights; rollouts in progress wait and go on with the new ones.

        When it returns, every worker serves this version; an engine that was paused before is an error. A
        worker that starts later, or again, loads them before it serves.

        Args:
            path: where each engine finds the weights, also later.
            version: names them in the rows, such as ``step-12``.

        Raises:
            UsageError: no worker serves the model.
            ModelRefused: an engine cannot do it.
            GymError: a worker did not answer within ``limit_s`` seconds, its engine failed, or it serves
                another version; call it again, because the others may have changed.
        """
        workers = self._serving(model)
        await weights.update(self.driver.bus, workers, str(path), version, model=model, limit_s=limit_s)

    def weights_paused(
        self, version: str, *, model: str = POLICY, limit_s: float = CONTROL_S
    ) -> AbstractAsyncContextManager[None]:
        """Pause a model as long as a context lasts, for a trainer that transfers the weights itself.

        When the context is left, every worker serves again and names its weights ``version``. If its body
        raises, generation stays paused, because the weights may be half changed.

        Raises:
            GymError: as `update_weights`.
        """
        workers = self._serving(model)
        return weights.paused(self.driver.bus, workers, version, model=model, limit_s=limit_s)

    def _serving(self, model: str) -> weights.Workers:
        async def workers() -> list[str]:
            found = [one.worker for one in await self.workers() if one.kind == "model" and model in one.pools]
            if not found:
                raise NotThereYet(
                    f"no worker serves model '{model}'; start one with: gym-runtime start model"
                )
            return found

        return workers

    async def drain(self, *names: str) -> list[tuple[Heartbeat, calls.Draining]]:
        """Ask workers to leave: they take no new work, finish what they have or give it back, and end.

        Returns the answers of all workers that were asked, at once; `workers` shows when they have left.
        Their supervisors start no others for them, and end with the last one. To call it again changes
        nothing.

        Args:
            names: a worker, a kind (``agent``), a pool (``agent:tool_loop``, or ``tool_loop``), or a host.

        Raises:
            UsageError: no worker is, serves or runs on what a name says.
            GymError: a worker did not answer, or these credentials may not ask.
        """
        chosen = named(await self.workers(), names)
        answers = await drain(self.driver.bus, chosen)
        return [(worker, answers[worker.worker]) for worker in chosen if worker.worker in answers]

    async def status(self) -> Status:
        """Workers, queue depths and runs, now."""
        workers = await fresh(self.driver.bus, await self.workers())
        runs = await self.runs()
        depths = await queues(self.driver.bus, workers, runs)
        return Status(workers=workers, queues=depths, runs=runs, progress=await self.progress(runs))

    async def progress(self, runs: Iterable[RunInfo]) -> dict[str, RunProgress]:
        """How far runs are, by their ids."""
        return await look(self.driver.bus, runs)
