"""From options to rollouts: where the rows are, what is made of them, and what others are told of the run.

``run`` and ``publish`` share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gym_runtime import clock
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset, Source
from gym_runtime.files.rows import alone, expand, required_roles
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.messages.sampling import Sampling


def sources(names: Sequence[str], file: Path | None) -> list[Source]:
    """The file that was named, or the environments' own examples.

    Raises:
        UsageError: neither a file nor an environment was named, or there is no such environment.
    """
    if file is not None:
        return [Source(str(file), names[0] if len(names) == 1 else None)]
    if not names:
        raise UsageError("say what to run: gym-runtime run NAME, or -i FILE with rows that carry agent_ref")
    return [Source(str(catalogue.environment(name).examples), name) for name in names]


def with_sampling(settings: RolloutSettings, sampling: Sampling) -> RolloutSettings:
    """The settings with what the sampling flags said."""
    return replace(
        settings, sampling={name: value for name, value in vars(sampling).items() if value is not None}
    )


def specs(dataset: Dataset, settings: RolloutSettings, run: str, *, attached: bool) -> Iterator[RolloutSpec]:
    """The rollouts to be made, in the order of the rows. The same settings give the same ones each time."""
    return expand(dataset.read(), settings, run=run, attached=attached, numbering=dataset.numbering())


def require_groups(dataset: Dataset, settings: RolloutSettings) -> None:
    """Refuse rows whose rollouts are to be compared with each other, where each has one.

    Raises:
        UsageError: there is such an environment.
    """
    if settings.repeats > 1 or dataset.repeats_rows:
        return
    for name in sorted(dataset.environments):
        if catalogue.known_environment(name).definition.compare is not None:
            raise UsageError(f"{alone(name)} (--repeats N)")


def role_pools(environments: Iterable[str], settings: RolloutSettings) -> list[str]:
    """The pools that rollouts in some environments ask in roles."""
    pools = set(settings.roles.values())
    for name in environments:
        required = required_roles(catalogue.known_environment(name).definition)
        pools.update(pool for role, pool in required.items() if role not in settings.roles)
    return sorted(pools)


def run_info(dataset: Dataset, settings: RolloutSettings, run: str, total: int, model: str = "") -> RunInfo:
    """What others are told of the run: ``total`` rollouts, the agents that they wait for, and the model."""
    agents = dataset.agents if settings.agent is None else [settings.agent]
    return RunInfo(
        run=run,
        total=total,
        environments=sorted(dataset.environments),
        agents=sorted(agents),
        created_s=clock.now(),
        model=model or settings.model_pool,
    )
