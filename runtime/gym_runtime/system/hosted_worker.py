"""The worker of a process, by its kind: made of what its pool names, and how it is observed and drained."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import anyio
import msgspec

from gym_runtime import clock, logs
from gym_runtime.bus.interface import Bus
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import GymError, NoWorker, UsageError
from gym_runtime.rpc.meter import Meter
from gym_runtime.system.spec import PoolSpec
from gym_runtime.timing import CALLERS_GONE_S
from gym_runtime.workers.adapter import Adapter, ModelSettings

CALLERS_LOOK_S = 0.25
"""How often a draining worker looks for callers (`CALLERS_GONE_S`)."""

ERROR_CHARS = 500


class _Runs(Protocol):
    """What every kind of worker can do."""

    async def run(self, *, ready: Callable[[], None]) -> None: ...


class HostedWorker(msgspec.Struct, frozen=True):
    """A worker and how to observe and drain it."""

    hosted: _Runs
    pools: tuple[str, ...]
    serving: Callable[[], bool]
    in_use: Callable[[], int]
    load: Callable[[], float]
    drain: Callable[[], Awaitable[None]]
    meter: Meter
    detail: Callable[[], dict[str, str]] = dict


@asynccontextmanager
async def hosted_worker(pool: PoolSpec, bus: Bus, worker: str, crashed: str) -> AsyncGenerator[HostedWorker]:
    """The worker of a pool, for as long as the context lasts; ``crashed`` is the one whose place it takes.

    Raises:
        UsageError: it cannot be made; the message says why.
    """
    if pool.kind == "agent":
        yield _agent_worker(pool, bus, worker, crashed)
    elif pool.kind == "resource":
        yield _resource_worker(pool, bus, worker)
    else:
        async with _model_worker(pool, bus, worker) as member:
            yield member


def _agent_worker(pool: PoolSpec, bus: Bus, worker: str, crashed: str) -> HostedWorker:
    from gym_runtime.workers.agent_worker import AgentWorker

    agents = {catalogue.known_name("agents", name): _made("agents", name) for name in pool.names}
    hosted = AgentWorker(bus, worker=worker, agents=agents, slots=pool.slots, crashed=crashed)

    def detail() -> dict[str, str]:
        return {"stalled": str(hosted.stalled)} if hosted.stalled else {}

    return HostedWorker(
        hosted,
        tuple(agents),
        lambda: hosted.serving,
        lambda: hosted.in_use,
        lambda: hosted.load,
        hosted.drain,
        hosted.meter,
        detail,
    )


def adapter_of(settings: ModelSettings) -> Adapter:
    """The adapter of a model, to be entered.

    Raises:
        UsageError: there is no such adapter, or its class is not one.
    """
    return _made("models", settings.provider, settings)


def _made(kind: catalogue.Kind, name: str, *arguments: object) -> Any:
    """An agent, or a model's adapter with its settings."""
    made: Any = catalogue.load_class(kind, name)
    if kind == "models" and not (hasattr(made, "__aenter__") and hasattr(made, "__aexit__")):
        raise UsageError(
            f"{name}: its class 'Adapter' needs the methods __aenter__ and __aexit__, both async"
        )
    try:
        # Tried before the call: a TypeError from within the constructor is another matter.
        inspect.signature(made).bind(*arguments)
    except TypeError as error:
        given = ", ".join(("self", *(type(argument).__name__ for argument in arguments)))
        raise UsageError(
            f"{name}: its class '{made.__name__}' must take __init__({given}): {error}"
        ) from error
    return made(*arguments)


def _resource_worker(pool: PoolSpec, bus: Bus, worker: str) -> HostedWorker:
    from gym_sandbox import bubblewrap

    from gym_runtime.environment.isolated import start_ahead
    from gym_runtime.workers.resource_worker import ResourceWorker

    # One after the other: imports hold the interpreter's lock, so that threads gain nothing, and some may
    # only be made in the main thread. What isolated verifications need, their processes import side by side.
    logs.logger().info("loading environments", environments=list(pool.names))
    started_s = time.monotonic()
    loaded = [catalogue.environment(name) for name in pool.names]
    for environment in loaded:
        requirements.require(environment)
    logs.logger().info(
        "environments are loaded",
        number=len(loaded),
        took_s=round(time.monotonic() - started_s, 2),
        verifiers_started=start_ahead(loaded),
    )
    environments = {environment.name: environment for environment in loaded}
    hosted = ResourceWorker(bus, worker=worker, environments=environments, capacity=pool.slots)
    detail = {"sandbox": bubblewrap.kind()}

    async def drain() -> None:
        await _finish(bus, lambda: hosted.service.in_use, hosted.service.drained)
        with suppress(GymError):
            # Sessions whose end was not heard of would hold up the drain until their time limit.
            await hosted.close_settled()
        await _finish(bus, lambda: len(hosted.sessions), hosted.sessions.emptied)

    return HostedWorker(
        hosted,
        hosted.service.pools,
        lambda: hosted.service.serving,
        lambda: len(hosted.sessions),
        lambda: hosted.service.load,
        drain,
        hosted.meter,
        lambda: detail,
    )


async def _finish(bus: Bus, left: Callable[[], int], finished: Callable[[], Awaitable[None]]) -> None:
    """Wait until no work is left, or no caller has been there for `CALLERS_GONE_S`."""
    here_s = anyio.current_time()
    while left() and anyio.current_time() < here_s + CALLERS_GONE_S:
        with anyio.move_on_after(CALLERS_LOOK_S):
            await finished()
        if left() and await _has_callers(bus):
            here_s = anyio.current_time()


async def _has_callers(bus: Bus) -> bool:
    """Whether any follower of the members is alive.

    It asks for the list of a kind that does not exist: a worker need not read the list, only know that a
    follower answers.
    """
    try:
        await bus.request("members.none", b"", deadline_s=clock.monotonic() + CALLERS_GONE_S)
    except NoWorker:
        return False
    except GymError:
        # No answer in time is no proof that there are no callers.
        pass
    return True


@asynccontextmanager
async def _model_worker(pool: PoolSpec, bus: Bus, worker: str) -> AsyncGenerator[HostedWorker]:
    from gym_runtime.workers.model_worker import ModelWorker

    if pool.model is None:
        raise UsageError(
            f"model pool {', '.join(pool.names)} does not say which model; give --model PROVIDER/NAME"
        )
    settings = pool.model
    async with adapter_of(settings) as adapter:
        hosted = ModelWorker(
            bus,
            worker=worker,
            pools=pool.names,
            adapter=adapter,
            capacity=pool.slots,
            per_minute=settings.requests_per_minute / pool.processes,
            model=(settings.provider, settings.name),
        )
        service = hosted.service

        def detail() -> dict[str, str]:
            detail = {"model": f"{settings.provider}/{settings.name}"}
            if hosted.weight_version:
                detail["weight_version"] = hosted.weight_version
            if hosted.paused:
                detail["paused"] = "true"
            if hosted.only_errors:
                detail["only_errors"] = hosted.only_errors[:ERROR_CHARS]
            return detail

        yield HostedWorker(
            hosted,
            pool.names,
            lambda: service.serving,
            lambda: service.in_use,
            lambda: service.load,
            lambda: _finish(bus, lambda: service.in_use, service.drained),
            hosted.meter,
            detail,
        )
