"""The pools of workers that rollouts need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gym_runtime.environment import catalogue
from gym_runtime.system.spec import PoolSpec
from gym_runtime.workers.adapter import ModelSettings


def make_pools(
    environments: Sequence[str],
    model: str | ModelSettings | None,
    *,
    agents: Sequence[str] = (),
    workers: int = 1,
    concurrency: int = 1024,
    model_pool: str = "policy",
    roles: Mapping[str, str | ModelSettings] | None = None,
) -> tuple[PoolSpec, ...]:
    """The pools that rollouts in these environments need, ``workers`` processes of each kind.

    Args:
        roles: models that are asked besides the policy, by the names under which they are served.
    """
    # Each one, also where the agents are given: rows may name it from now on.
    loaded = [catalogue.environment(name) for name in environments]
    asked = {agent for environment in loaded for agent in environment.definition.agent_names}
    chosen = {catalogue.address(catalogue.known_name("agents", name), "agents") for name in agents}
    wanted = tuple(sorted(chosen or asked))
    # Rounded up: fewer slots than were asked for would leave some of the engine idle.
    slots = -(-concurrency // workers)
    pools = [
        PoolSpec(kind="agent", names=wanted, processes=workers, capacity=slots),
        PoolSpec(kind="resource", names=tuple(environments), processes=workers),
    ]
    if model is not None:
        settings = ModelSettings.parse(model) if isinstance(model, str) else model
        pools.append(PoolSpec(kind="model", names=(model_pool,), processes=workers, model=settings))
    for name, role in (roles or {}).items():
        settings = ModelSettings.parse(role) if isinstance(role, str) else role
        pools.append(PoolSpec(kind="model", names=(name,), processes=workers, model=settings))
    return tuple(pools)
