"""Several engines that serve the same model, as one: who is there, who is up, whose turn it is.

The rules are `routing`'s; this module has the clock and the connections. It looks at every replica once a
second: at the metrics of one that is up, at the health of one that is out. A replica whose connection is
refused or breaks, or that answers 5xx, is out until a check succeeds, which begins at once; the call fails
with `ModelUnavailable`, and when the worker asks again another replica has it. Sources are read again, and
what they name no more finishes its calls and is closed. A source that cannot be read, or that names
nobody, changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Self, TypeVar

import anyio
import anyio.to_thread
from gym_runtime import clock
from gym_runtime.errors import DeadlineExceeded, ModelError, ModelUnavailable, UsageError
from gym_runtime.logs import logger
from gym_runtime.model import CallContext, ModelSettings

from gym_models.wire import discovery, endpoint, load, preflight, routing
from gym_models.wire.replica import E, Replica
from gym_models.wire.routing import ReplicaState

LOOK_S = 1.0
_GRACE_S = 1.0
_METRICS_LIMIT_S = 5.0
_OVERLOADED = " answered 429"

T = TypeVar("T")


class Replicas(Generic[E]):
    """The replicas of one adapter. Enter it before use, and leave it in the same task.

    Args:
        settings: ``urls`` are base URLs or sources, see `discovery`.
        engine: makes the engine for an endpoint; it is entered here.
        at: makes the endpoint for a base URL.
        check_model: whether a replica has to list the model.
        look_s: seconds between two looks at a replica or at a source.

    Raises:
        UsageError: on entering, when no replica answers; those that are late join when they are up.
    """

    def __init__(
        self,
        settings: ModelSettings,
        engine: Callable[[endpoint.Endpoint], E],
        *,
        at: Callable[[str, ModelSettings], endpoint.Endpoint] = endpoint.at,
        check_model: bool = True,
        look_s: float = LOOK_S,
    ) -> None:
        self._settings = settings
        self._make = engine
        self._at = at
        self._check_model = check_model
        self._look_s = look_s
        self._sources = [url for url in settings.urls if discovery.changes(url)]
        self._named: dict[str, list[str]] = {}
        self._replicas: dict[str, Replica[E]] = {}
        self._started = False
        self._waiting: deque[anyio.Event] = deque()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                for replica in self._replicas.values():
                    await replica.engine.__aexit__()
                self._replicas.clear()

    # -- what adapters use ----------------------------------------------------------------------------

    async def ask(self, context: CallContext, question: Callable[[E], Awaitable[T]]) -> T:
        """Put a question to the replica whose turn it is; waits while all are full.

        Raises:
            DeadlineExceeded: no replica had room before the deadline.
            GymError: what ``question`` raises. After a `ModelUnavailable` that isn't a rate limit, the
                replica is out until it has been checked.
        """
        replica = await self._admit(context)
        try:
            return await question(replica.engine)
        except ModelUnavailable as error:
            self._suspect(replica, error)
            raise
        finally:
            self._release(replica)

    def engines(self) -> list[E]:
        """The engines that are up, for what all of them are to be told."""
        return [one.engine for one in self._replicas.values() if one.state.up and not one.state.leaving]

    def states(self) -> list[ReplicaState]:
        """What is known of every replica, those that are leaving included; not copies."""
        return [one.state for one in self._replicas.values()]

    # -- calls ----------------------------------------------------------------------------------------

    async def _admit(self, context: CallContext) -> Replica[E]:
        replica = self._choose(context)
        if replica is None:
            with anyio.move_on_after(max(0.0, context.deadline_s - clock.now())):
                replica = await self._wait(context)
        if replica is None:
            states = self.states()
            raise DeadlineExceeded(
                f"none of {len(states)} replicas had room before the deadline: "
                f"{sum(one.in_flight for one in states)} calls are in flight, {len(self._waiting)} wait",
                stage="model",
            )
        return replica

    def _choose(self, context: CallContext) -> Replica[E] | None:
        state = routing.choose(context.rollout, (one.state for one in self._replicas.values()))
        if state is None:
            return None
        state.in_flight += 1
        return self._replicas[state.url]

    async def _wait(self, context: CallContext) -> Replica[E]:
        turn = anyio.Event()
        self._waiting.append(turn)
        replica = None
        try:
            while True:
                await turn.wait()
                replica = self._choose(context)
                if replica is not None:
                    return replica
                turn = anyio.Event()
                self._waiting.appendleft(turn)
        finally:
            if replica is None:
                if turn.is_set():  # somebody else's turn, then
                    self._wake(1)
                else:
                    self._waiting.remove(turn)

    def _release(self, replica: Replica[E]) -> None:
        replica.state.in_flight -= 1
        if replica.state.leaving:
            replica.look.set()
        self._wake(1)

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft().set()

    def _suspect(self, replica: Replica[E], error: ModelUnavailable) -> None:
        # Alone there is nobody to go to, and to be asked again is a check in itself.
        if len(self._replicas) > 1 and replica.state.up and _OVERLOADED not in error.message:
            self._take_out(replica, error.message)
            replica.look.set()

    # -- looks ----------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._sources:
            for url in self._settings.urls:
                self._named[url] = await discovery.look_up(url)
            await self._settle()
        else:
            await self._add(await anyio.to_thread.run_sync(endpoint.resolve, self._settings, self._at))
        if not self._replicas:
            raise UsageError(f"{', '.join(self._sources)} names no model URL")
        async with anyio.create_task_group() as checks:

            async def check(replica: Replica[E]) -> None:
                await self._check(replica)
                if replica.state.up:
                    late_s = anyio.current_time() + _GRACE_S
                    checks.cancel_scope.deadline = min(checks.cancel_scope.deadline, late_s)

            for replica in self._replicas.values():
                checks.start_soon(check, replica)
        if not self.engines():
            first = next(iter(self._replicas.values())).reason
            count = len(self._replicas)
            raise UsageError(first if count == 1 else f"none of {count} replicas can be used: {first}")
        self._started = True  # before, what is wrong with all of them is the error
        for replica in self._replicas.values():
            if not replica.state.up:
                logger().warning("a replica is out", url=replica.state.url, reason=replica.reason)
            self._tasks.start_soon(self._watch, replica)
        if self._sources:
            self._tasks.start_soon(self._follow)

    async def _add(self, endpoints: Iterable[endpoint.Endpoint]) -> list[Replica[E]]:
        added: list[Replica[E]] = []
        for one in endpoints:
            if one.url not in self._replicas:
                replica = self._replicas[one.url] = Replica(self._make(one))
                await replica.engine.__aenter__()
                added.append(replica)
        return added

    async def _settle(self) -> list[Replica[E]]:
        """Have exactly the replicas that the sources name; the new ones."""
        wanted = [
            await anyio.to_thread.run_sync(self._at, url, self._settings)
            for urls in self._named.values()
            for url in urls
        ]
        names = {one.url for one in wanted}
        for replica in self._replicas.values():
            leaving = replica.state.url not in names
            if leaving and not replica.state.leaving:
                logger().info("a replica leaves", url=replica.state.url, in_flight=replica.state.in_flight)
            replica.state.leaving = leaving
            if leaving:
                replica.look.set()
        return await self._add(wanted)

    async def _follow(self) -> None:
        """Read the sources again and again."""
        while True:
            await anyio.sleep(self._look_s)
            for source in self._sources:
                try:
                    found = await discovery.look_up(source)
                except UsageError as error:
                    logger().warning("a source of replicas stays as it was", reason=error.message)
                    continue
                if found and found != self._named[source]:
                    await self._renew(source, found)

    async def _renew(self, source: str, found: list[str]) -> None:
        before, self._named[source] = self._named[source], found
        try:
            added = await self._settle()
        except UsageError as error:
            self._named[source] = before
            logger().warning("a source of replicas stays as it was", reason=error.message)
            return
        for replica in added:
            replica.look.set()
            self._tasks.start_soon(self._watch, replica)

    async def _watch(self, replica: Replica[E]) -> None:
        """Look at one replica until it has left."""
        state = replica.state
        while not state.leaving or state.in_flight:
            idle = state.up and not replica.has_metrics  # nothing to learn
            with anyio.move_on_after(None if idle else self._look_s):
                await replica.look.wait()
            replica.look = anyio.Event()
            if not state.up:
                await self._check(replica)
            elif replica.has_metrics:
                await self._measure(replica)
        del self._replicas[state.url]
        await replica.engine.__aexit__()

    async def _check(self, replica: Replica[E]) -> None:
        """Whether a replica can be used; a wrong key or a missing model keep it out, too."""
        try:
            await preflight.check(replica.engine, check_model=self._check_model)
        except UsageError as error:
            self._take_out(replica, error.message)
        else:
            replica.state.up = True
            self._wake(len(self._waiting))

    def _take_out(self, replica: Replica[E], reason: str) -> None:
        replica.state.up = False
        if self._started and reason != replica.reason:
            logger().warning("a replica is out", url=replica.state.url, reason=reason)
        replica.reason = reason

    async def _measure(self, replica: Replica[E]) -> None:
        engine, state = replica.engine, replica.state
        url = engine.endpoint.url.removesuffix("/v1") + load.PATH
        try:
            answer = await engine.pool.get(url, deadline_s=clock.now() + _METRICS_LIMIT_S)
        except DeadlineExceeded:  # an engine under load has more urgent things to do
            return
        except ModelError as error:
            self._take_out(replica, error.message)
            replica.look.set()
            return
        found = load.read(answer.body) if answer.status == 200 else None
        if found is None:
            replica.has_metrics = False
            return
        state.load = found
        state.limit = routing.adapted(state, found)
        self._wake(len(self._waiting))
