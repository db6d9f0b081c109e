"""Several engines that serve the same model, as one: which replicas exist, which are up, which gets a call.

`routing` has the rules, `replica` the connections, and this module the clock. It checks every replica once a
second: whether one that is up answers, and its metrics; whether one that is down can be used again. A replica
whose connection is refused or breaks, or that answers 5xx, is down until a check succeeds, and checks start
at once; the call fails with `ModelUnavailable`, and the worker's retry goes to another replica. The same
happens to all calls of a replica that accepts connections and answers nothing, if another replica is up; a
single replica keeps them until it answers again or their deadlines pass. Sources are read repeatedly; a
replica that they no longer name finishes its calls and is closed. A source that cannot be read, or that names
no replica, changes nothing. Where none is up after a first answer, rollouts wait (`Replicas.held`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Self

import anyio
import anyio.to_thread
from gym_runtime import UsageError, clock
from gym_runtime.adapters import CallContext, ModelSettings
from gym_runtime.errors import (
    DeadlineExceeded,
    ModelError,
    ModelLimited,
    ModelRefused,
    ModelUnavailable,
    NotThereYet,
)
from gym_runtime.logs import logger
from gym_runtime.plurals import counted

from gym_models.wire import endpoint, preflight, routing
from gym_models.wire.discovery import ReplicaSources
from gym_models.wire.replica import E, Replica, T
from gym_models.wire.routing import ReplicaState
from gym_models.wire.waiting_line import WaitingLine

LOOK_S = 1.0
OUTAGE_S = 1.0
"""So long no replica has answered before rollouts wait."""
HEALTH_LIMIT_S = 5.0
_GRACE_S = 1.0


class Replicas(Generic[E]):
    """The replicas of one adapter. Enter it before use, and leave it in the same task.

    Args:
        settings: ``urls`` are base URLs or sources, see `discovery`.
        engine: makes the engine for an endpoint; it is entered here.
        at: makes the endpoint for a base URL.
        check_model: whether a replica has to list the model.
        look_s: seconds between two checks of a replica or a source.
        health_limit_s: limit of a health check in seconds; a replica counts as frozen after
        `routing.MISSED_CHECKS` missed checks in a row.

    Raises:
        UsageError: on entering, when no replica answers; late replicas join when they are up.
    """

    def __init__(
        self,
        settings: ModelSettings,
        engine: Callable[[endpoint.Endpoint], E],
        *,
        at: Callable[[str, ModelSettings], endpoint.Endpoint] = endpoint.at,
        check_model: bool = True,
        look_s: float = LOOK_S,
        health_limit_s: float = HEALTH_LIMIT_S,
    ) -> None:
        self._settings = settings
        self._make = engine
        self._at = at
        self._check_model = check_model
        self._look_s = look_s
        self._health_limit_s = health_limit_s
        self._sources = ReplicaSources(settings, at)
        self._replicas: dict[str, Replica[E]] = {}
        self._started = False
        self._answered = False
        self._away_s: float | None = None
        self._waiting = WaitingLine()

    async def __aenter__(self) -> Self:
        # Entered by hand: the adapter is a context manager, which cannot hold a block open.
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
        """Send a call to the replica that `routing` chooses; waits while all are full.

        Raises:
            DeadlineExceeded: no replica had room before the deadline.
            ModelUnavailable: the replica froze, or refuses every call, and another one is up.
            GymError: what ``question`` raises. After a `ModelUnavailable` that isn't a rate limit, the
                replica is down until a check succeeds.
        """
        replica = await self._admit(context)
        try:
            answer = await replica.ask(question)
            self._answered = True
            return answer
        except ModelUnavailable as error:
            self._suspect(replica, error)
            raise
        except ModelRefused as error:
            if error.any_call and self._passes_on(replica, error):
                raise ModelUnavailable(f"{error.message}; another replica is asked", stage="model") from error
            raise
        finally:
            self._release(replica)

    def engines(self) -> list[E]:
        """The engines that are up, for commands to all of them."""
        return [one.engine for one in self._replicas.values() if one.state.up and not one.state.leaving]

    def states(self) -> list[ReplicaState]:
        """The state of every replica, those that are leaving included; not copies."""
        return [one.state for one in self._replicas.values()]

    @property
    def held(self) -> str:
        """Why rollouts should not ask the replicas now; empty if they may. See `routing.held`."""
        settings = self._settings
        if reason := self._outage():
            return reason
        if not settings.hold_kv_usage and not settings.hold_waiting:
            return ""
        return routing.held(
            self.states(),
            in_line=len(self._waiting),
            kv_usage=settings.hold_kv_usage,
            waiting=settings.hold_waiting,
        )

    def _outage(self) -> str:
        """Why no replica answers, for as long as that is waited for; empty before the first answer."""
        if not self._answered or self.engines():
            self._away_s = None
            return ""
        now_s = clock.monotonic()
        if self._away_s is None:
            self._away_s = now_s
        limit_s = self._settings.hold_outage_s
        # Not at once: what only broke a connection answers the next check.
        if not self._away_s + OUTAGE_S <= now_s < self._away_s + limit_s:
            return ""
        reason = next((one.reason for one in self._replicas.values()), "no replica is named")
        return f"{reason} (they wait for {limit_s:.0f} s at most)"

    # -- calls ----------------------------------------------------------------------------------------

    async def _admit(self, context: CallContext) -> Replica[E]:
        replica = self._choose(context)
        if replica is None:
            with anyio.move_on_after(max(0.0, context.deadline_s - clock.monotonic())):
                replica = await self._waiting.wait(lambda: self._choose(context))
        if replica is None:
            states = self.states()
            raise DeadlineExceeded(
                f"none of {counted(len(states), 'replica')} had room before the deadline: "
                f"calls in flight: {sum(one.in_flight for one in states)}, waiting: {len(self._waiting)}",
                stage="model",
            )
        return replica

    def _choose(self, context: CallContext) -> Replica[E] | None:
        states = (one.state for one in self._replicas.values())
        state = routing.choose(context.rollout, states, clock.monotonic())
        if state is None:
            return None
        # Here, without an await since the choice, or two calls would take the last place.
        state.in_flight += 1
        return self._replicas[state.url]

    def _release(self, replica: Replica[E]) -> None:
        replica.state.in_flight -= 1
        if replica.state.leaving:
            replica.look.set()
        self._waiting.wake(1)

    def _suspect(self, replica: Replica[E], error: ModelUnavailable) -> None:
        state, now_s = replica.state, clock.monotonic()
        # One that limits its calls is busy, not down.
        if not state.up or isinstance(error, ModelLimited):
            return
        state.failed += 1
        # The first one in a row may be an accident, and the replica has the prefixes of its rollouts.
        if state.failed > 1 and state.rests_until_s <= now_s:
            state.rests_until_s = now_s + replica.rests.next_s()
        # A single replica stays in use until a check fails, too: there is no other.
        if len(self._replicas) > 1:
            self._take_out(replica, error.message)
        replica.look.set()

    def _passes_on(self, replica: Replica[E], error: ModelRefused) -> bool:
        """Whether another replica may take the calls of one that refuses them all, and which so rests."""
        state, now_s = replica.state, clock.monotonic()
        known, state.refused = state.refused, True
        # One that has refused all, too, is no way out: where the key is wrong everywhere, the call fails.
        if all(one.leaving or one.refused or not one.up for one in self.states()):
            return False
        if not known:
            logger().warning("a replica refuses all calls: others get them", reason=error.message)
        state.failed += 1
        if state.rests_until_s <= now_s:
            state.rests_until_s = now_s + replica.rests.next_s()
        return True

    # -- looks ----------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._sources.change:
            await self._settle(await self._sources.read())
        else:
            await self._add(await anyio.to_thread.run_sync(endpoint.resolve, self._settings, self._at))
        if not self._replicas:
            raise NotThereYet(f"{', '.join(self._sources.change)} names no model URL")
        async with anyio.create_task_group() as checks:

            async def check(replica: Replica[E]) -> None:
                await self._check(replica)
                if replica.state.up:
                    late_s = anyio.current_time() + _GRACE_S
                    # Late ones need not be waited for: they join when they are up.
                    checks.cancel_scope.deadline = min(checks.cancel_scope.deadline, late_s)

            for replica in self._replicas.values():
                checks.start_soon(check, replica)
        if not self.engines():
            replicas = list(self._replicas.values())
            first, count = replicas[0].reason, len(replicas)
            kind = NotThereYet if all(one.absent for one in replicas) else UsageError
            raise kind(first if count == 1 else f"none of {count} replicas can be used: {first}")
        self._started = True  # before that, a replica's error is raised
        for replica in self._replicas.values():
            if not replica.state.up:
                logger().warning("a replica is out", url=replica.state.url, reason=replica.reason)
            self._tasks.start_soon(self._watch, replica)
        if self._sources.change:
            self._tasks.start_soon(self._follow)

    async def _add(self, endpoints: Iterable[endpoint.Endpoint]) -> list[Replica[E]]:
        added: list[Replica[E]] = []
        for one in endpoints:
            if one.url not in self._replicas:
                replica = Replica(self._make(one))
                await replica.engine.__aenter__()
                # After it was entered: `__aexit__` leaves those that are listed.
                self._replicas[one.url] = replica
                added.append(replica)
        return added

    async def _settle(self, wanted: list[endpoint.Endpoint]) -> list[Replica[E]]:
        """Keep exactly the replicas that the sources name; returns the new ones."""
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
        """Read the sources repeatedly."""
        while True:
            await anyio.sleep(self._look_s)
            for source in self._sources.change:
                try:
                    wanted = await self._sources.read_again(source)
                    added = await self._settle(wanted) if wanted is not None else []
                except UsageError as error:
                    logger().warning("a source of replicas stays as it was", reason=error.message)
                    continue
                for replica in added:
                    replica.look.set()
                    self._tasks.start_soon(self._watch, replica)

    async def _watch(self, replica: Replica[E]) -> None:
        """Check one replica until it has left."""
        state = replica.state
        while not state.leaving or state.in_flight:
            idle = state.up and not replica.engine.endpoint.private  # nothing to learn
            with anyio.move_on_after(None if idle else self._look_s):
                await replica.look.wait()
            # No await since it was seen, so no request to look is lost.
            replica.look = anyio.Event()
            if not state.up:
                await self._check(replica)
            elif not idle:
                await self._look(replica)
            elif not state.leaving:  # a call has failed
                await self._check(replica)
                await anyio.sleep(self._look_s)
            self._forsake()
        del self._replicas[state.url]
        await replica.engine.__aexit__()

    def _forsake(self) -> None:
        """Cancel the calls at frozen replicas that others can take."""
        states = self.states()
        for replica in self._replicas.values():
            if routing.is_forsaken(replica.state, states) and (ended := replica.end_calls()):
                logger().warning("calls at a frozen replica are ended", url=replica.state.url, calls=ended)

    async def _check(self, replica: Replica[E]) -> None:
        """Whether a replica can be used; a wrong key or a missing model keep it out, too."""
        try:
            await preflight.check(replica.engine, check_model=self._check_model)
        except UsageError as error:
            if isinstance(error.__cause__, DeadlineExceeded):
                replica.state.missed += 1
            replica.absent = isinstance(error, NotThereYet)
            self._take_out(replica, error.message)
        else:
            replica.state.missed = 0
            replica.state.up = True
            self._waiting.wake()

    def _take_out(self, replica: Replica[E], reason: str) -> None:
        replica.state.up = False
        if self._started and reason != replica.reason:
            logger().warning("a replica is out", url=replica.state.url, reason=reason)
        replica.reason = reason

    async def _look(self, replica: Replica[E]) -> None:
        """Whether a replica that is up still answers, and how busy it is."""
        state = replica.state
        try:
            await replica.poll(self._health_limit_s)
            if replica.has_metrics and not state.missed:
                await replica.measure(self._health_limit_s)
        except ModelError as error:
            self._take_out(replica, error.message)
            replica.look.set()
            return
        if routing.is_frozen(state):
            self._take_out(
                replica, f"{state.url} left {state.missed} health checks in a row without an answer"
            )
        self._waiting.wake()
