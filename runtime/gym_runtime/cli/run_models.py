"""Which models answer in a run: the policy and those in roles; started for it, or served by its system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gym_runtime.cli import terminal
from gym_runtime.cli.chosen_rows import with_sampling
from gym_runtime.cli.download import fetch_weights
from gym_runtime.cli.model_choice import (
    POLICY,
    parse_agent_options,
    parse_model,
    parse_role_sampling,
    parse_roles,
)
from gym_runtime.cli.options.run_options import RunOptions
from gym_runtime.cli.options.shared_options import EMBEDDED_CONCURRENCY
from gym_runtime.cli.remote import ask
from gym_runtime.client import make_pools
from gym_runtime.client.rows import require_declared, require_roles, served_model
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.system.spec import PoolSpec
from gym_runtime.workers.adapter import ModelSettings


class RunModels:
    """The models of one run, and the settings that name their pools.

    Args:
        options: with what its file of a system says, which ``file_models`` come from.
        run: its id, under which the models are served that it starts: no other run asks for that name.

    Attributes:
        policy: the model.
        settings: of the rollouts.
        concurrency: rollouts in flight that the models can use.
    """

    def __init__(self, options: RunOptions, file_models: Mapping[str, ModelSettings], run: str) -> None:
        self._options = options
        self._file_models = file_models
        self._run = run
        self._named_roles = parse_roles(options.roles)
        self._role_models: dict[str, ModelSettings] = {}
        file_model = self._file_policy()
        self.policy = parse_model(options.model, file_model)
        self._left_open = bool(options.broker.urls) and not (options.model or file_model)
        agent = options.settings.agent
        self.settings = replace(
            with_sampling(options.settings, options.sampling),
            agent=agent and catalogue.known_name("agents", agent),
            model_pool=run,
            role_sampling=parse_role_sampling(options.role_sampling),
            agent_options=parse_agent_options(options.agent_options),
        )
        self.concurrency = options.concurrency

    @property
    def name(self) -> str:
        """The policy, as ``PROVIDER/NAME``."""
        return f"{self.policy.provider}/{self.policy.name}"

    def resume(self, run: str) -> None:
        """Serve the models under the name of the run that is resumed.

        Attempts that a dead client left may go on: they know the model by this name.
        """
        self._run = run
        self.settings = replace(self.settings, model_pool=run)

    def pools(self, environments: Iterable[str]) -> tuple[PoolSpec, ...]:
        """The workers to start: those of the environments, and of the models that the run starts itself."""
        options = self._options
        if self.serves_policy:
            fetch_weights(self.policy)
        return make_pools(
            tuple(environments),
            self.policy if self.serves_policy else None,
            agents=(options.settings.agent,) if options.settings.agent else (),
            workers=options.workers,
            concurrency=self.concurrency,
            model_pool=self.settings.model_pool,
            roles={self.settings.roles[role]: model for role, model in self._role_models.items()},
        )

    def choose_policy(self) -> None:
        """Take the model of the system that is joined if none was named, else have ours at hand."""
        options = self._options
        if self._left_open:
            pool = options.settings.model_pool
            served = served_model(ask(options.broker, lambda gym: gym.workers()), pool)
            if served is not None:
                self.policy, self.settings = served, replace(self.settings, model_pool=pool)
                name = f"{served.provider}/{served.name}"
                terminal.errors().print(
                    f"{name} answers, which this system serves as '{pool}'; --model starts another",
                    soft_wrap=True,
                )
        if self.policy.provider == "embedded":
            self.concurrency = min(self.concurrency, EMBEDDED_CONCURRENCY)
        per_minute = self.policy.requests_per_minute
        if options.model.requests_per_minute and not self.serves_policy:
            raise UsageError(
                "--requests-per-minute is for a model that the run starts (--model PROVIDER/NAME); "
                "a system says it of the models that it serves in its file: requests_per_minute"
            )
        if per_minute and self.serves_policy:
            # More rollouts in flight than requests in a minute would only wait, and use up their time.
            self.concurrency = max(1, min(self.concurrency, round(per_minute)))

    def _file_policy(self) -> ModelSettings | None:
        """The policy of the configuration file: the pool of that name, else the first that is no role's."""
        models = self._file_models
        roles = {*self._named_roles, *_declared(self._options.names)}
        others = [name for name in models if name not in roles]
        return models.get(POLICY) or (models[others[0]] if others else None)

    def choose_roles(self, environments: Sequence[str]) -> None:
        """Say which pool serves each role: one of ours, the policy's, or one of the system that is joined.

        Raises:
            UsageError: a role has no model, or a model was named for a role that no environment has.
        """
        named, roles = self._named_roles, _declared(environments)
        if not self._options.settings.agent:
            require_declared(sorted({*named, *self.settings.role_sampling}), environments)
        pools: dict[str, str] = {}
        for name in sorted(roles | named.keys()):
            model = named[name] if name in named else self._file_models.get(name)
            if model is not None:
                fetch_weights(model)
                pools[name] = f"{self._run}-{name}"
                self._role_models[name] = model
            elif name in named:
                pools[name] = self.settings.model_pool
        missing = roles - pools.keys()
        if missing and self._options.broker.urls:
            workers = ask(self._options.broker, lambda gym: gym.workers())
            pools |= {name: name for name in missing if served_model(workers, name)}
        require_roles(environments, pools, _how_to_name)
        self.settings = replace(self.settings, roles=pools)
        if any(model.provider == "embedded" for model in self._role_models.values()):
            self.concurrency = min(self.concurrency, EMBEDDED_CONCURRENCY)

    @property
    def serves_policy(self) -> bool:
        """Whether this run starts the model that it asks."""
        return self.settings.model_pool == self._run

    def role_model(self, role: str) -> str:
        """What answers in a role, the same for every part of a run that is resumed."""
        model = self._role_models.get(role)
        if model is not None:
            return f"{model.provider}/{model.name}"
        own = self.settings.roles[role] == self.settings.model_pool
        return POLICY if own else f"pool {self.settings.roles[role]}"


def _declared(environments: Iterable[str]) -> set[str]:
    """The roles that some environments have."""
    return {
        role.name for name in environments for role in catalogue.environment(name).definition.declared_roles
    }


def _how_to_name(role: str) -> str:
    option = "--judge " if role == "judge" else f"--role {role}="
    return f"{option}PROVIDER/NAME, or {option}policy to have the model answer for itself"
