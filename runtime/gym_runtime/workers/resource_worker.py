"""The resource worker: hosts environments, holds their sessions, answers their calls.

An environment's questions to models in roles go over the bus to the models' workers, within the deadline and
the retries of the request that it executes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.environment import usage
from gym_runtime.environment.declared import declaration
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Models, models_of
from gym_runtime.environment.shapes import Episode, Session
from gym_runtime.environment.verdict import Pending, Verdict
from gym_runtime.errors import GymError, ResourceError, RuntimeFault, SessionLost, UsageError
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.messages.calls import Comparison
from gym_runtime.messages.metric_names import OUTSIDE, RESOURCE_DURATION
from gym_runtime.messages.names import rollout_token, token
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.stored_records import RUNS
from gym_runtime.plugins import load_plugin, plugins
from gym_runtime.rollout.role_calls import RoleCalls, RoleLimits
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.timing import SESSIONS_SWEPT_S
from gym_runtime.workers.role_ledger import RoleLedger, ask_role
from gym_runtime.workers.saved_parts import (
    forget_rollout,
    idle_rollouts,
    keep_state,
    kept_s,
    kept_state,
    store_of,
)
from gym_runtime.workers.sessions import HeldSession, Sessions

SESSION_KEPT_S = 30.0
"""A session that its rollout has not closed is closed this long after the rollout's deadline, unless that was
moved by a pause or a full engine: then when the rollout is over."""
SESSION_IDLE_S = 60.0
"""After this time without a call, the worker checks whether the session's rollout is over."""

BESIDE = "beside_environments"
"""Plugins of this kind are functions of the bus that make async contexts; each lasts as long as a worker."""

# In one sweep, because each look asks the broker up to two questions.
LOOKED_AT = 64


class ResourceWorker:
    """Answers the calls to one or more environments.

    A signal on ``over.<environment>`` says that a rollout is over. The worker then closes all sessions that
    the rollout's attempts have left here, including sessions unknown to every other worker.

    Args:
        worker: this worker's id.
        environments: by name.
        capacity: the most calls in progress; sessions between calls do not count.
        near: the services of the models that live in this process.

    Attributes:
        meter: its counters.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        worker: str,
        environments: Mapping[str, LoadedEnvironment],
        capacity: int,
        near: Sequence[Service] = (),
    ) -> None:
        self.sessions = Sessions()
        self._bus = bus
        self._environments = dict(environments)
        self._worker = worker
        self._router = Router(bus, "model", watches=False, services=near)
        self._limits: RoleLimits = {}
        self.service = Service(
            bus,
            kind="resource",
            worker=worker,
            pools=list(self._environments),
            capacity=capacity,
            handle=self._handle,
        )
        self.meter = self.service.meter

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Serve until cancelled; then every session is closed.

        Raises:
            UsageError: see `kept_s`; not for each rollout that saves something.
        """
        kept_s()
        async with AsyncExitStack() as stack:
            for name in plugins(BESIDE):
                await stack.enter_async_context(load_plugin(BESIDE, name)(self._bus))
            await self._serve(ready)

    async def _serve(self, ready: Callable[[], None]) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sweep)
                if any(environment.resource.roles for environment in self._environments.values()):
                    tasks.start_soon(self._router.run)

                def over(incoming: Incoming) -> None:
                    tasks.start_soon(self.sessions.close_all_of, incoming.payload.decode(errors="replace"))

                async with self._bus.serve("over.*", over):
                    await self.service.run(ready=ready)
        finally:
            with anyio.move_on_after(10, shield=True):
                await self.sessions.close_all()

    async def close_settled(self, idle_s: float = 0.0, most: int | None = None) -> None:
        """Close sessions whose rollouts are over, in case the signal to close them was lost.

        Where the broker knows nothing of a session's rollout, its time limit ends it. A rollout's deadline
        moves while it is paused or waits for an engine with room, so the limit alone ends no other.
        """
        idle = self.sessions.idle(idle_s)
        for name, entry in idle if most is None else random.sample(idle, min(most, len(idle))):
            over = await self._is_over(entry.rollout)
            if over or (over is None and entry.expires_s < clock.monotonic()):
                logger().info("a session was left behind and is closed", session=name)
                await self.sessions.close(name)

    async def _is_over(self, rollout: str) -> bool | None:
        """None if the broker does not know its run, as of a session that a client holds."""
        try:
            subject = f"rollout.{rollout_token(rollout)}"
        except UsageError:  # empty, or a caller's own text: an error would end the look at all other sessions
            return None
        if await self._bus.counts(subject):
            return True
        found = await self._bus.latest(f"runs.{token(rollout.partition('.')[0], 'run')}")
        info = RUNS.read(found[0]) if found else None
        return None if info is None else info.state != "active"

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(SESSIONS_SWEPT_S)
            try:
                await self.close_settled(SESSION_IDLE_S, LOOKED_AT)
                for rollout in await idle_rollouts(max(SESSION_IDLE_S, kept_s()), LOOKED_AT):
                    if await self._is_over(rollout):
                        await forget_rollout(rollout)
            except GymError as error:
                logger().info("idle sessions were not checked", error=str(error))

    async def _handle(self, pool: str, request: calls.Request[Any], budget: RetryBudget) -> Raw:
        environment = self._environments.get(pool)
        if environment is None:
            raise RuntimeFault(f"this worker does not serve '{pool}'")
        call = calls.body_of(request, calls.decode_resource_call)
        if isinstance(call, calls.CloseSession):
            await self.sessions.close_each([call.session, *call.more])
            return calls.pack(None)
        if isinstance(call, calls.Declare):
            return calls.pack(declaration(environment))
        # Remains "cancelled" if neither line below is reached.
        started_s, error = clock.monotonic(), "cancelled"
        operation = str(call.__struct_config__.tag)
        tracing.note({"gym.environment": pool, "gym.operation": operation})
        try:
            answer = await self._called(environment, call, request, budget)
            error = ""
            return answer
        # Caught only to name the error in the figures, then raised again.
        except Exception as raised:
            error = type(raised).__name__
            raise
        finally:
            took_s = clock.monotonic() - started_s
            self.meter.observe(RESOURCE_DURATION, took_s, pool, operation, error)
            for (service, how), times in usage.taken().items():
                self.meter.add(OUTSIDE, service, how, by=times)

    async def _called(
        self,
        environment: LoadedEnvironment,
        call: calls.ResourceCall,
        request: calls.Request[Any],
        budget: RetryBudget,
    ) -> Raw:
        ledger = RoleLedger(budget, self._asking(environment, request, budget))
        if isinstance(call, calls.Verify) and environment.resource.stateless and calls.opens(call):
            models = _models(environment, request)
            with ledger.reported():
                return ledger.pack(await judge_recorded(environment, call.task, call.response, models))
        if isinstance(call, calls.Compare):
            with ledger.reported():
                return await self._compared(environment, call, _models(environment, request), ledger)
        entry = await self._entry(environment, call, request)
        ledger.session = entry.asked
        entry.calls += 1
        entry.used_s = clock.monotonic()
        try:
            answer = await entry.once(
                request.key,
                lambda: self._answered(environment, entry, call, ledger, request.key),
                again=not isinstance(call, calls.CallTool | calls.StepCall),
            )
            entry.known = True
            return answer
        finally:
            entry.calls -= 1
            # Only an answer tells the rollout which worker has its session: without an answer, the rollout
            # would never close it.
            if not entry.known and not entry.calls:
                await self.sessions.close(call.session)

    def _asking(
        self, environment: LoadedEnvironment, request: calls.Request[Any], budget: RetryBudget
    ) -> RoleCalls | None:
        if not environment.resource.roles:
            return None
        return RoleCalls(
            self._router,
            self._limits,
            self._bus,
            environment=environment.name,
            request=request,
            budget=budget,
            worker=self._worker,
        )

    async def _entry(
        self, environment: LoadedEnvironment, call: calls.SessionCall, request: calls.Request[Any]
    ) -> HeldSession:
        models = _models(environment, request)
        saved = call.restore if isinstance(call, calls.OpenSession) else NULL
        restore = None if bytes(saved) == b"null" else saved

        async def opened() -> Session[Any]:
            origins = call.origins if isinstance(call, calls.OpenSession) else ()
            store = store_of(self._bus, request, origins) if environment.resource.saves else None
            if restore is not None and store is None:
                raise ResourceError(
                    "this rollout keeps no states, so it cannot begin with one", stage="restore"
                )
            state = None if restore is None or store is None else await kept_state(store, restore)
            return await environment.resource.open(call.task, models, store=store, restore=state)

        opener = opened if calls.opens(call) else None
        entry = await self.sessions.get(call.session, request.deadline_s + SESSION_KEPT_S, opener)
        entry.rollout = request.rollout
        if opener is not None and environment.definition.isolated:
            # A copy: the row is a view of the request, and would keep all of it in memory.
            entry.row = call.task.copy()
        return entry

    async def _answered(
        self,
        environment: LoadedEnvironment,
        entry: HeldSession,
        call: calls.ResourceCall,
        ledger: RoleLedger,
        key: str,
    ) -> Raw:
        with ledger.reported():
            if isinstance(call, calls.Verify):
                return ledger.pack(await self._judge(environment, entry, call.response))
            entry.working += 1
            try:
                answer = await self._answer(environment, entry, call, key)
            finally:
                entry.working -= 1
        ledger.keep()
        return answer

    async def _answer(
        self, environment: LoadedEnvironment, entry: HeldSession, call: calls.ResourceCall, key: str
    ) -> Raw:
        resource, session = environment.resource, entry.session
        if isinstance(call, calls.CallTool):
            output = await resource.call_tool(session, call.name, call.arguments)
            answer = calls.ToolAnswer(output=output)
        elif isinstance(call, calls.StepCall):
            answer = await resource.step(session, call.response)
        elif not isinstance(call, calls.OpenSession):
            raise RuntimeFault(f"a session does not answer {type(call).__name__}")
        elif bytes(call.restore) != b"null":
            return calls.pack(calls.StepAnswer(saved=call.restore))  # says that this worker restores
        elif isinstance(session, Episode):
            observation = await resource.reset(session)
            answer = calls.StepAnswer(items=observation, tools=resource.offered_tools(session))
        else:
            answer = calls.StepAnswer()
        # Not while another call of the session is in progress: half of its effects would be saved, too.
        if session.store is not None and entry.working == 1:
            # A call that is cancelled while its effect is saved must not have it twice.
            entry.note(key, calls.pack(answer))
            answer = msgspec.structs.replace(answer, saved=await _saved(resource, session))
        return calls.pack(answer)

    async def _compared(
        self, environment: LoadedEnvironment, call: calls.Compare, models: Models, ledger: RoleLedger
    ) -> Raw:
        verdicts = await environment.resource.compare(call.task, call.candidates, models)
        log = ledger.log
        return calls.pack(Comparison(verdicts=verdicts, role_use=log.use, role_answers=log.answers))

    async def _judge(
        self, environment: LoadedEnvironment, entry: HeldSession, response: Raw
    ) -> Verdict | Pending:
        if entry.row is not None:
            return await judge_recorded(environment, entry.row, response, entry.session.models)
        return await environment.resource.verify(entry.session, response)


async def _saved(resource: Resource, session: Session[Any]) -> Raw:
    """What a session has saved; without it, a lost session is rebuilt from an older state.

    Raises:
        SessionLost: what the call has done is gone, so it is made again.
    """
    try:
        saved = await resource.saved(session)
        return saved if session.store is None else await keep_state(session.store, saved)
    except SessionLost:
        raise
    except GymError as error:
        logger().warning("a session was not saved", error=str(error))
        return NULL


def _models(environment: LoadedEnvironment, request: calls.Request[Any]) -> Models:
    """The models that a request gives to an environment's roles."""
    roles, given = environment.resource.roles, request.roles
    return models_of(roles, lambda role: role.name in given, ask_role, request.role_sampling)
