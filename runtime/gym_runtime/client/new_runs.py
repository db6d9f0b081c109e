"""What a new run is made of: its settings, its rollouts, and what others are told of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gym_runtime import clock
from gym_runtime.client.engine_check import check_engine
from gym_runtime.client.resources import Resources
from gym_runtime.client.role_checks import require_declared, with_served_roles
from gym_runtime.client.row_sources import RowSources
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.files.rows import Numbering, check_sampling, expand, whole_groups
from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import RunInfo, new_run_id
from gym_runtime.rpc.members import Heartbeat, all_workers
from gym_runtime.workers.adapter import ModelSettings

POLICY = "policy"
"""The pool of the policy, which may also answer in a role."""
Declared = Mapping[str, LoadedEnvironment]


class NewRuns(Resources):
    """Makes runs of rows.

    Attributes:
        served: the model that `connect` has started as the pool ``policy``, if it has.
    """

    served: ModelSettings | None = None

    async def workers(self) -> list[Heartbeat]:
        """Every worker that is alive. Its load is that of its last announcement; `status` asks each."""
        return await all_workers(self.driver.bus)

    async def _specs(
        self,
        sources: RowSources,
        settings: RolloutSettings | None,
        environment: str | None,
        keywords: Mapping[str, Any],
    ) -> tuple[Iterable[RolloutSpec], RunInfo]:
        """The rollouts of a new run, and what others are told of it."""
        chosen = self._settings(settings, keywords)
        info = self._run_info(chosen, environments=[environment] if environment else [])
        declared = await self._declared(environment)
        specs = sources.noting(
            expand(
                sources.lines(),
                chosen,
                run=info.run,
                environment=environment,
                attached=True,
                numbering=Numbering(apart=sources.apart),
                declared=declared,
            )
        )
        # An agent that the caller names may ask roles of its own, which no environment declares.
        named = () if chosen.agent else self._named_roles(settings, keywords)
        if not sources.listed:
            require_declared(named, info.environments, declared)
            return await with_served_roles(self.workers, specs), info
        listed = whole_groups(list(specs))
        require_declared(named, {spec.environment for spec in listed}, declared)
        listed = list(await with_served_roles(self.workers, listed))
        return listed, msgspec.structs.replace(
            info,
            total=len(listed),
            environments=sorted({spec.environment for spec in listed}),
            agents=sorted({spec.agent for spec in listed}),
        )

    def _settings(self, settings: RolloutSettings | None, keywords: Mapping[str, Any]) -> RolloutSettings:
        chosen = (settings or RolloutSettings()).with_keywords(keywords)
        if self.served is not None and chosen.model_pool == POLICY:
            check_engine(self.served, check_sampling(chosen.sampling))
        agent = chosen.agent and catalogue.known_name("agents", chosen.agent)
        return replace(chosen, agent=agent, roles={**self.roles, **chosen.roles})

    @staticmethod
    def _named_roles(settings: RolloutSettings | None, keywords: Mapping[str, Any]) -> tuple[str, ...]:
        """The roles that the caller names, apart from those that `connect` serves."""
        chosen = (settings or RolloutSettings()).with_keywords(keywords)
        return tuple({**chosen.roles, **chosen.role_sampling})

    def _run_info(self, settings: RolloutSettings, *, environments: Sequence[str]) -> RunInfo:
        model = settings.model_pool
        if self.served is not None and model == POLICY:
            model = f"{self.served.provider}/{self.served.name}"
        return RunInfo(
            run=new_run_id(), total=0, environments=list(environments), created_s=clock.now(), model=model
        )


def served_model(workers: Iterable[Heartbeat], pool: str) -> ModelSettings | None:
    """The model that workers serve under a name; None if no worker does."""
    for worker in workers:
        if worker.kind == "model" and pool in worker.pools and not worker.draining:
            return ModelSettings.parse(worker.detail.get("model", ""))
    return None
