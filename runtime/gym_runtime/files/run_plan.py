"""What is to be made of a dataset: which rollouts, how many, and what others are told of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gym_runtime import clock
from gym_runtime.environment.environment import Environment
from gym_runtime.errors import UsageError
from gym_runtime.files.dataset import Dataset
from gym_runtime.files.rows import alone, expand, required_roles
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo


@dataclass(frozen=True)
class RunPlan:
    """The rollouts that some settings make of a dataset. The same two give the same rollouts each time."""

    dataset: Dataset
    settings: RolloutSettings

    def specs(self, run: str, *, attached: bool) -> Iterator[RolloutSpec]:
        """The rollouts to be made, in the order of the rows.

        Args:
            attached: they stop when their client disappears.
        """
        dataset = self.dataset
        return expand(
            dataset.read(),
            self.settings,
            run=run,
            attached=attached,
            numbering=dataset.numbering(),
            declared=dataset.declared,
        )

    def one_of_each(self) -> list[RolloutSpec]:
        """The first rollout of each environment, to look at what it needs."""
        found: dict[str, RolloutSpec] = {}
        for spec in self.specs("looked-at", attached=False):
            found.setdefault(spec.environment, spec)
            if len(found) == len(self.dataset.environments):
                break
        return list(found.values())

    def info(self, run: str, total: int, model: str = "") -> RunInfo:
        """What others are told of the run.

        Args:
            total: rollouts to be made.
            model: ``PROVIDER/NAME``; by default the pool that serves it.
        """
        agents = self.dataset.agents if self.settings.agent is None else [self.settings.agent]
        return RunInfo(
            run=run,
            total=total,
            environments=sorted(self.dataset.environments),
            agents=sorted(agents),
            created_s=clock.now(),
            model=model or self.settings.model_pool,
        )

    @property
    def repeats(self) -> dict[str, int]:
        """The rollouts per row of each environment that the rows are of."""
        return {
            name: self.settings.repeats or self._definition(name).repeats
            for name in sorted(self.dataset.environments)
        }

    @property
    def rollouts(self) -> int:
        """How many rollouts the rows make."""
        repeats = self.repeats
        return sum(rows * repeats[name] for name, rows in self.dataset.environments.items())

    @property
    def role_pools(self) -> list[str]:
        """The pools that the rollouts ask in roles."""
        given = self.settings.roles
        pools = set(given.values())
        for name in self.dataset.environments:
            required = required_roles(self._definition(name))
            pools.update(pool for role, pool in required.items() if role not in given)
        return sorted(pools)

    def require_groups(self) -> None:
        """Refuse rows whose rollouts are to be compared with each other, where each has one.

        Raises:
            UsageError: there is such an environment.
        """
        if self.dataset.repeats_rows:
            return
        for name, repeats in self.repeats.items():
            if repeats == 1 and self._definition(name).compare is not None:
                raise UsageError(f"{alone(name)} (--repeats N)")

    def _definition(self, name: str) -> Environment:
        return self.dataset.environment(name).definition
