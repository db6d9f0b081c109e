"""What is checked of models in roles before the first rollout is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import anyio

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rpc.members import Heartbeat

APPEAR_S = 5.0
"""How long a worker may take to appear: one that was lost is being started again."""
APPEAR_LOOK_S = 0.2
"""How often it is looked for meanwhile."""


Workers = Callable[[], Awaitable[list[Heartbeat]]]


def require_roles(environments: Sequence[str], given: Container[str], remedy: Callable[[str], str]) -> None:
    """Refuse environments whose roles have no model.

    Args:
        given: the roles that have one.
        remedy: what to say of a role that has none.

    Raises:
        UsageError: a role that is not optional has none.
    """
    for name in environments:
        loaded = catalogue.environment(name)
        for role in loaded.definition.declared_roles:
            if not role.optional and role.name not in given:
                raise UsageError(
                    f"environment '{loaded.name}' asks a model in the role '{role.name}', "
                    f"and none is given: {remedy(role.name)}"
                )


def require_declared(
    named: Sequence[str], environments: Iterable[str], known: Mapping[str, LoadedEnvironment] | None = None
) -> None:
    """Refuse roles that none of some environments has. Without environments nothing is known of them.

    Args:
        known: environments whose code is elsewhere, by their names.

    Raises:
        UsageError: a role was named that no environment has; with those that they have.
    """
    elsewhere = known or {}
    loaded = [(elsewhere.get(name) or catalogue.environment(name)).definition for name in environments]
    declared = {role.name for definition in loaded for role in definition.declared_roles}
    unknown = [name for name in named if name not in declared] if loaded else []
    if unknown:
        near = catalogue.nearest(unknown[0], sorted(declared))
        there = f"they have: {', '.join(sorted(declared))}" if declared else "they ask no models in roles"
        raise UsageError(
            f"no environment of this run has the role '{unknown[0]}'; "
            + (f"did you mean '{near}'?" if near else there)
        )


async def with_served_roles(workers: Workers, specs: Iterable[RolloutSpec]) -> Iterable[RolloutSpec]:
    """The rollouts, refused if no worker serves a role of theirs.

    Those of a list are looked at now; others as they are read, by what workers serve now. A worker that is
    missing has `APPEAR_S` seconds to appear.

    Raises:
        UsageError: no worker serves the pool of a role; of a list, before the first rollout is made.
    """
    if isinstance(specs, Sequence):
        wanted = {pool for spec in specs for pool in spec.roles.values()}
        return list(_checked(specs, await _served(workers, wanted))) if wanted else specs
    remaining = iter(specs)
    # One is looked at now, so that a missing model is refused before anything starts in the usual case.
    first = list(islice(remaining, 1))
    served = await _served(workers, {pool for spec in first for pool in spec.roles.values()})
    return chain(list(_checked(first, served)), _checked(remaining, served))


def _checked(specs: Iterable[RolloutSpec], served: Container[str]) -> Iterator[RolloutSpec]:
    for spec in specs:
        for role, pool in spec.roles.items():
            if pool not in served:
                raise UsageError(
                    f"environment '{spec.environment}' asks a model in the role '{role}', and no worker "
                    f"serves model '{pool}': connect(roles={{'{role}': 'PROVIDER/NAME'}}, …), or start one "
                    f"with: gym-runtime start model:{pool} --model PROVIDER/NAME"
                )
        yield spec


async def _served(workers: Workers, wanted: set[str]) -> set[str]:
    """The pools that model workers serve, once those that are wanted are among them, or after a while."""
    served = set[str]()
    with anyio.move_on_after(APPEAR_S):
        while True:
            served = {pool for one in await workers() if one.kind == "model" for pool in one.pools}
            if wanted <= served:
                break
            await anyio.sleep(APPEAR_LOOK_S)
    return served
