"""`connect`, which joins a running system or starts one, and the pools that a system needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import cast

from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.client.client import Client, Joined
from gym_runtime.client.reward_watch import AUDITOR, Watch, load_watch
from gym_runtime.client.row_sources import POLICY, Started, require_declared, require_roles
from gym_runtime.client.streaming import background
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError, require_at_least
from gym_runtime.logs import logger
from gym_runtime.messages.alarms import Alarm
from gym_runtime.system.hosting import host, together
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings


def connect(
    nats: str | Sequence[str] | None = None,
    *,
    model: str | ModelSettings | None = None,
    roles: Mapping[str, str | ModelSettings] | None = None,
    environments: str | Sequence[str] = (),
    agents: str | Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    prefix: str = "gym",
    hosted: bool = False,
    watch_rewards: str | None = None,
    second_look: str = "",
    on_alarm: Callable[[Alarm], None] | None = None,
) -> Client:
    """A client that connects to a running system, starts one, or both, when it is opened.

    It is opened in one of two ways::

        async with connect(nats=URL) as gym: ...
        gym = await connect(nats=URL).open()  # and at the end: await gym.close()

    With ``nats`` alone it joins the system behind that broker. With ``environments`` and ``model`` it
    starts the workers for them (and a broker, unless ``nats`` names one), which end with the context.

    Args:
        nats: the broker's URL or URLs.
        model: ``PROVIDER/NAME`` or settings, served as the pool ``policy``.
        roles: the same for the models of the environments' roles, each served as the pool of its name, such
            as ``{"judge": "openai/NAME"}``; ``"policy"`` to have the policy answer in a role too.
        environments: one or several names, or paths of modules.
        agents: one or several; by default the agents that the environments name.
        workers: processes of each kind.
        concurrency: rollouts in flight, over all agent workers.
        prefix: of the system's subjects, which tells systems that share a broker apart.
        hosted: agent workers host the environments and models that may share their process; by default every
            worker has its own.
        watch_rewards: look a second time at rewarded rollouts of all runs of this client: at a share
            (``"0.03"``), at so many of each version of the weights (``"20"``), or at as many as 3 % of the
            processors allow (``"auto"``). Alarms are in `Client.alarms`, in the log, and in the system's
            status and metrics. When the client is closed, the looks that are left are made: up to 10 s.
        second_look: the environment of the second look, by name or path. A model looks if there is one in
            the role ``auditor``: ``roles={"auditor": "openai/NAME"}``.
        on_alarm: called with each alarm, in the client's event loop.

    Raises:
        UsageError: nothing says which system or which model, or what is watched.
    """
    urls = [nats] if isinstance(nats, str) else list(nats or ())
    environments, agents = _several(environments), _several(agents)
    if not urls and not environments:
        raise UsageError("say which system: connect(nats=URL), or connect(model=…, environments=[…])")
    require_at_least(1, workers=workers, concurrency=concurrency)
    _require_models(model, roles)
    if not urls and model is None:
        raise UsageError("say which model: connect(model='PROVIDER/NAME', environments=[…])")
    roles, auditor = dict(roles or {}), None
    if watch_rewards is not None and AUDITOR in roles:
        auditor = roles.pop(AUDITOR)
        if auditor == POLICY:
            raise UsageError("the policy does not audit itself: roles={'auditor': 'PROVIDER/NAME'}")
        auditor = ModelSettings.parse(auditor) if isinstance(auditor, str) else auditor
    if roles and not environments:
        raise UsageError("roles=… starts models for environments=[…]; which pool serves a role is a setting")
    own = {role: settings for role, settings in (roles or {}).items() if settings != POLICY}
    served = {role: role if role in own else POLICY for role in roles or {}}

    @asynccontextmanager
    async def joining() -> AsyncGenerator[Joined]:
        async with AsyncExitStack() as stack:
            found, served_policy, started = urls, None, None
            if environments:
                catalogue.forget_changed()
                if not agents:
                    require_declared(tuple(served), environments)
                # At a broker that others use, a worker of theirs may serve the role.
                if not urls:
                    require_roles(environments, served, "connect(roles={{'{}': 'PROVIDER/NAME'}}, …)".format)
                pools = make_pools(
                    environments, model, agents=agents, workers=workers, concurrency=concurrency, roles=own
                )
                if not urls:
                    started = _names(pools)
                pools = host(pools) if hosted else pools
                system = SystemSpec(pools=pools, nats=tuple(urls), prefix=prefix)
                found = [(await stack.enter_async_context(running(system))).url]
                if model is not None:
                    served_policy = ModelSettings.parse(model) if isinstance(model, str) else model
            bus = await stack.enter_async_context(connect_bus(found, prefix=prefix))
            tasks = await stack.enter_async_context(background())
            yield Joined(found, bus, tasks, served_policy, started)

    if watch_rewards is None:
        if second_look or on_alarm is not None:
            raise UsageError("second_look and on_alarm need watch_rewards, such as watch_rewards='auto'")
        return Client(roles=served, joining=joining, prefix=prefix)

    def watching(ring: Callable[[Alarm], None]) -> AbstractAsyncContextManager[Watch]:
        def tell(what: Alarm | str) -> None:
            logger().warning(str(what))
            if isinstance(what, Alarm):
                ring(what)
                if on_alarm is not None:
                    on_alarm(what)

        return load_watch()(_addresses(environments), watch_rewards, second_look, None, tell, auditor)

    watching(lambda _: None)  # for its error, before anything is started
    return Client(roles=served, joining=joining, watching=watching, prefix=prefix)


def _addresses(environments: Iterable[str]) -> dict[str, str]:
    """Where another process finds environments, by their names in records."""
    return {catalogue.known_name("environments", name): catalogue.address(name) for name in environments}


def make_pools(
    environments: Sequence[str],
    model: str | ModelSettings | None,
    *,
    agents: Sequence[str] = (),
    further_agents: Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    model_pool: str = "policy",
    roles: Mapping[str, str | ModelSettings] | None = None,
) -> tuple[PoolSpec, ...]:
    """The pools that rollouts in these environments need, ``workers`` processes of each kind.

    Args:
        agents: in place of those of the environments.
        further_agents: besides them; installed, or named by the user before.
        roles: models that are asked besides the policy, by the names under which they are served.
    """
    # Every environment, even if the agents are given: rows may name it from now on.
    loaded = catalogue.environments(environments)
    asked = {agent for environment in loaded for agent in environment.definition.agent_names}
    chosen = {catalogue.address(catalogue.known_name("agents", name), "agents") for name in agents}
    further = {catalogue.address(name, "agents") for name in further_agents}
    wanted = tuple(sorted(chosen or asked | further))
    # Rounded up: fewer slots than were asked for would leave some of the engine idle.
    slots = -(-concurrency // workers)
    pools = [
        PoolSpec(kind="agent", names=wanted, processes=workers, capacity=slots),
        PoolSpec(kind="resource", names=tuple(environments), processes=workers),
    ]
    models = {**({} if model is None else {model_pool: model}), **(roles or {})}
    for name, given in models.items():
        settings = ModelSettings.parse(given) if isinstance(given, str) else given
        pools.append(PoolSpec(kind="model", names=(name,), processes=workers, model=settings))
    return together(pools)


def _names(pools: Iterable[PoolSpec]) -> Started:
    """What the workers of pools serve, by the names that rollouts have."""
    found = {pool.kind: pool.names for pool in pools}
    return {
        "agent": [catalogue.known_name("agents", name) for name in found["agent"]],
        "environment": [catalogue.environment(name).name for name in found["resource"]],
    }


def _require_models(model: object, roles: object) -> None:
    """
    Raises:
        UsageError: a model or the roles are of another type.
    """
    if not isinstance(roles, Mapping | None):
        raise UsageError("roles must say which model answers in each role: roles={'judge': 'PROVIDER/NAME'}")
    given_to = cast("dict[str, object]", {"model": model, **(roles or {})})
    for name, given in given_to.items():
        if given is not None and not isinstance(given, str | ModelSettings):
            raise UsageError(f"{name} is {given!r}; it must be 'PROVIDER/NAME' or ModelSettings(…)")


def _several(names: str | Iterable[str] | None) -> Sequence[str]:
    # What is no iterable, such as an `Environment`, is refused where it is looked up.
    alone = isinstance(names, str) or not isinstance(cast("object", names), Iterable | None)
    return (cast("str", names),) if alone else tuple(names or ())
