"""The environments that are served where this client's process has no module of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.environment import catalogue
from gym_runtime.environment.declared import loaded
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.messages import calls
from gym_runtime.messages.declaration import decode_declaration
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.members import all_workers
from gym_runtime.rpc.retry_budget import RetryBudget

DECLARED_S = 10.0
"""How long a resource worker may take to say what its environment declares."""


class ServedEnvironments:
    """What the resource workers declared, asked for once for each environment.

    Args:
        router: the way to the workers, made when it is needed.
    """

    def __init__(self, bus: Bus, router: Callable[[], Router]) -> None:
        self._bus = bus
        self._router = router
        self._known: dict[str, LoadedEnvironment] = {}

    async def needed(self, environment: str | None) -> Mapping[str, LoadedEnvironment]:
        """The environments that rows may need and that are not found here.

        Args:
            environment: the only one that is needed; None for all that rows may name.

        Raises:
            GymError: the workers of one do not answer.
        """
        if environment is not None and (
            environment in self._known or catalogue.exists("environments", environment)
        ):
            return self._known
        served = await self._names()
        for name in sorted(served if environment is None else served & {environment}):
            # A file in the working directory is taken only where the user has named it.
            found = catalogue.exists if environment is not None else catalogue.is_known
            if name not in self._known and not found("environments", name):
                self._known[name] = await self._ask(name)
        return self._known

    async def all(self) -> dict[str, LoadedEnvironment]:
        """Every environment that is served now, by its name.

        Raises:
            GymError: the workers of one do not answer.
        """
        served: dict[str, LoadedEnvironment] = {}
        for name in await self._names():
            if not catalogue.is_known("environments", name):
                served[name] = self._known[name] = self._known.get(name) or await self._ask(name)
            else:
                served[name] = catalogue.known_environment(name)
        return served

    async def _names(self) -> set[str]:
        workers = await all_workers(self._bus)
        return {pool for worker in workers if worker.kind == "resource" for pool in worker.pools}

    async def _ask(self, name: str) -> LoadedEnvironment:
        request = calls.Request(body=calls.Declare(), deadline_s=clock.monotonic() + DECLARED_S)
        answer = await self._router().ask("resource", name, request, RetryBudget())
        return loaded(decode_declaration(answer.body))
