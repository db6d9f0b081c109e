"""Sessions and verdicts of environments, and what environments declare that have no module here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup

from gym_runtime.bus.interface import Bus
from gym_runtime.client.environment_session import EnvironmentSession, Said
from gym_runtime.client.environments import ServedEnvironments
from gym_runtime.client.row_sources import AnyRow, line
from gym_runtime.client.run_driver import RunDriver
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import GymError, UsageError, leaf
from gym_runtime.files.rows import Numbering, expand
from gym_runtime.logs import logger
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.run_info import new_run_id
from gym_runtime.rpc.ask import Router

CLIENT_CLOSE_S = 2.0
"""How long a client that leaves may take to close a session."""


Declared = Mapping[str, LoadedEnvironment]


class Resources:
    """What a client asks of resource workers.

    An environment whose module this process cannot find is read as its workers declare it.

    Args:
        roles: which pool serves which role, where the settings of rollouts do not say.

    Attributes:
        roles: as given.
    """

    def __init__(
        self,
        bus: Bus | None = None,
        tasks: TaskGroup | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self.driver = RunDriver(bus, tasks)
        self.roles = dict(roles or {})
        self._router: Router | None = None
        self._environments: ServedEnvironments | None = None
        self._sessions_run, self._sessions = new_run_id(), 0

    async def environments(self, *names: str) -> list[LoadedEnvironment]:
        """The environments that resource workers serve now, or those of these names, sorted.

        Raises:
            UsageError: none is served, or one of the names is not.
            GymError: the workers of one do not answer.
        """
        served = await self._served().all()
        # Without names, and with nothing served, one empty name: it leads to the error.
        for name in names or ("",) * (not served):
            if name not in served:
                what = f"environment '{name}'" if name else "an environment"
                raise UsageError(f"no worker serves {what}: gym-runtime start resource:{name or 'NAME'}")
        return [served[name] for name in sorted(set(names) or served)]

    @asynccontextmanager
    async def session(
        self, row: AnyRow, *, environment: str | None = None, timeout_s: float | None = None
    ) -> AsyncGenerator[EnvironmentSession]:
        """A session of an environment, for a caller that runs the model itself; it ends with the context.

        Args:
            row: a dataset row, whose fields the environment reads.
            environment: for a row without an ``agent_ref``.
            timeout_s: how many seconds it may last; by default the environment's ``timeout_s``. A session
                whose client has died is released after that.

        Raises:
            TaskError, UsageError: the row or a name is wrong.
            GymError: the environment could not open it, or no worker serves it.
        """
        session = await self._session(row, environment, timeout_s)
        try:
            await session.open()
            yield session
        finally:
            # Shielded: a caller that was cancelled releases its session as well.
            with anyio.move_on_after(CLIENT_CLOSE_S, shield=True), suppress(GymError):
                await session.close()  # if the workers do not hear of it, its time limit releases it

    async def verify(
        self, row: AnyRow, response: Said, *, environment: str | None = None, timeout_s: float | None = None
    ) -> Verdict:
        """The verdict on a response that was made elsewhere.

        An environment with state gets a new session, and the response's tool calls that have outputs, or its
        turns, are repeated there first. So the response holds the whole transcript.

        Args:
            response: the text of a message, output items, or a response of the Responses API.

        Raises:
            TaskError, UsageError: the row, the response or a name is wrong.
            GymError: there is no verdict: the verifier raised, a judge was silent, a worker was lost.
        """
        session = await self._session(row, environment, timeout_s)
        try:
            return await session.judge(response)
        finally:
            # As in `session`.
            with anyio.move_on_after(CLIENT_CLOSE_S, shield=True), suppress(GymError):
                await session.close()

    async def _session(
        self, row: AnyRow, environment: str | None, timeout_s: float | None
    ) -> EnvironmentSession:
        declared = await self._declared(environment)
        number, self._sessions = self._sessions, self._sessions + 1
        (task,) = expand(
            [line(row)],
            RolloutSettings(roles=self.roles, timeout_s=timeout_s, durability="result"),
            run=self._sessions_run,
            environment=environment,
            numbering=Numbering(number, apart=True),
            declared=declared,
        )
        known = declared.get(task.environment) or catalogue.known_environment(task.environment)
        return EnvironmentSession(task, known, self._routed())

    async def _declared(self, environment: str | None) -> Declared:
        return await self._served().needed(environment)

    def _served(self) -> ServedEnvironments:
        if self._environments is None:
            self._environments = ServedEnvironments(self.driver.bus, self._routed)
        return self._environments

    def _routed(self) -> Router:
        """The way to the resource workers; it is followed who they are from the first use on."""
        if self._router is None:
            self._router = Router(self.driver.bus, "resource", watches=False)
            # In the group of the connection: the router outlives the session that needed it first.
            self.driver.tasks.start_soon(self._follow_workers, self._router)
        return self._router

    async def _follow_workers(self, router: Router) -> None:
        try:
            await router.run()
        # `except*`: the router runs in a task group, which wraps what it raises.
        except* GymError as group:
            # A broker that was configured before clients had sessions refuses; nothing else must end by that.
            logger().warning("the client does not hear which workers there are", error=str(leaf(group)))
