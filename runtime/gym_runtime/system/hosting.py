"""Which workers share a process, with ``--hosted``: an agent worker hosts what may run beside it.

A call between actors of one process needs no message (`gym_runtime.rpc.ask`). But they also share an event
loop, an interpreter and an end. So these live in their own processes in this layout, too:

- environments whose verification is isolated, or that bring packages, files, services or programs: they
  compute, block or need memory;
- environments whose sessions cannot be rebuilt: where they live apart, a rollout survives the end of its
  agent worker with its session;
- guests, which are other projects' code;
- models whose engine runs on this machine as a part of their worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.system.spec import PoolSpec
from gym_runtime.workers.adapter import ModelSettings

OWN_ENGINE = frozenset({"embedded", "record", "vllm"})
"""The adapters that run their engine themselves, unless a URL says where one runs."""


def together(pools: Iterable[PoolSpec]) -> tuple[PoolSpec, ...]:
    """The pools, with those that serve the same embedded model as one pool of all their names.

    So a model that answers in several roles is loaded once. Others stay apart: their weights may change.
    """
    found: list[PoolSpec] = []
    for pool in pools:
        place = next((n for n, one in enumerate(found) if replace(pool, names=one.names) == one), None)
        if place is None or pool.model is None or pool.model.provider != "embedded":
            found.append(pool)
        else:
            found[place] = replace(pool, names=(*found[place].names, *pool.names))
    return tuple(found)


def host(pools: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
    """The pools, with those that may be hosted inside the pool of agents.

    There must be one pool of agents, and a pool that it hosts must have as many processes.
    """
    agents = [pool for pool in pools if pool.kind == "agent"]
    if len(agents) != 1:
        return tuple(pools)
    hosted: list[PoolSpec] = []
    apart: list[PoolSpec] = []
    for pool in pools:
        if pool.kind == "agent":
            continue
        if pool.processes != agents[0].processes:
            apart.append(pool)
        elif pool.model is not None:
            (hosted if model_may_be_hosted(pool.model) else apart).append(pool)
        else:
            inside = tuple(name for name in pool.names if may_be_hosted(catalogue.environment(name)))
            outside = tuple(name for name in pool.names if name not in inside)
            hosted += [replace(pool, names=inside)] if inside else []
            apart += [replace(pool, names=outside)] if outside else []
    return (replace(agents[0], hosted=tuple(hosted)), *apart)


def may_be_hosted(environment: LoadedEnvironment) -> bool:
    """Whether an environment may run in the process of the agents that ask it."""
    declared = environment.definition
    needs = declared.extra or declared.assets or declared.tool_packs or declared.require is not None
    rebuilt = declared.replayable or environment.resource.stateless
    return not (environment.guest or declared.isolated or needs) and rebuilt


def model_may_be_hosted(model: ModelSettings) -> bool:
    """Whether a model's adapter may run in the process of the agents that ask it."""
    # An adapter in a file of the user's may be an engine.
    remote = model.provider not in OWN_ENGINE and model.provider in catalogue.names("models")
    return bool(model.urls) or remote
