"""The models that the command line asks for: its options, put together with a system's file; and those of a
run: the policy and those in roles, started for it, or served by its system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gym_runtime.cli import terminal
from gym_runtime.cli.options import POLICY, BrokerOptions, ModelOptions, RoleOptions, named_values
from gym_runtime.cli.remote import ask
from gym_runtime.client import make_pools
from gym_runtime.client.reward_watch import AUDITOR
from gym_runtime.client.row_sources import require_declared, require_roles, served_model, unserved
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.system.spec import PoolSpec
from gym_runtime.workers.adapter import ModelSettings

if TYPE_CHECKING:
    from gym_runtime.cli.run import RunOptions

DEFAULT_MODEL = "embedded/smollm2-135m"
EMBEDDED_CONCURRENCY = 16
"""More rollouts in flight than the embedded engine has slots would only wait, and use up their time."""


def parse_model(
    options: ModelOptions, file_model: ModelSettings | None = None, said: str = ""
) -> ModelSettings:
    """The model that was asked for, else the file's, else the default one. Imports no adapter.

    Args:
        said: the option that names it; ``--model`` by default.

    Raises:
        UsageError: no such provider, no name, or an address without a model.
    """
    text, engine = options.model, {"engine_args": options.engine_args} if options.engine_args else {}
    if file_model is not None and not text:
        return msgspec.structs.replace(
            file_model,
            urls=options.model_urls or file_model.urls,
            options=file_model.options | engine,
            requests_per_minute=options.requests_per_minute or file_model.requests_per_minute,
        )
    if options.model_urls and not text:
        raise UsageError("--model-url needs the model's name there too: --model openai/NAME")
    settings = ModelSettings.parse(
        text or DEFAULT_MODEL,
        urls=options.model_urls,
        api=options.model_api,
        options=engine,
        requests_per_minute=options.requests_per_minute or 0.0,
    )
    said = said or f"--model {text}"
    if not catalogue.exists("models", settings.provider):
        if "/" not in text:
            raise UsageError(
                f"{said}: write it as PROVIDER/NAME, such as openai/NAME or scripted/echo; "
                "'gym-runtime ls models' lists the providers"
            )
        near = catalogue.suggest(settings.provider, catalogue.names("models"), "models")
        raise UsageError(f"{said}: there is no model provider '{settings.provider}'{near}")
    if not settings.name:
        raise UsageError(f"{said} lacks the model's name: --model {settings.provider}/NAME")
    return settings


def parse_roles(options: RoleOptions) -> dict[str, ModelSettings | None]:
    """The models that were named for roles; None for the policy itself. Imports no adapter.

    Raises:
        UsageError: an option is not of its form, names a role twice, or is the address of a role without a
            model.
    """
    named = named_values("--role", options.roles, "PROVIDER/NAME", judge=options.judge)
    urls = named_values("--role-url", options.role_urls, "URL")
    for role in urls:
        if role not in named or named[role] == [POLICY]:
            raise UsageError(
                f"--role-url {role}=… needs the model's name there too: --role {role}=openai/NAME"
            )
    found: dict[str, ModelSettings | None] = {}
    for role, texts in named.items():
        if len(texts) > 1:
            raise UsageError(f"--role {role}=…: the role has a model already")
        text = texts[0]
        option = f"--judge {text}" if text == options.judge else f"--role {role}={text}"
        asked = ModelOptions(model=text, model_urls=tuple(urls.get(role, ())))
        found[role] = None if text == POLICY else parse_model(asked, said=option)
    return found


def fetch_weights(model: ModelSettings) -> None:
    """Have an embedded model's weights at hand before its worker needs them; nothing for other models.

    Raises:
        UsageError: they are nowhere to be had.
    """
    if model.provider == "embedded":
        fetch = catalogue.load("models", "embedded").fetch_weights
        with terminal.downloading(f"weights of {model.name}") as report:
            fetch(model.name, report)


class RunModels:
    """The models of one run, and the settings that name their pools.

    Args:
        names: the environments that were named.
        file_models: those of the system's file.

    Attributes:
        run: its id, under which the models are served that it starts: no other run asks for that name.
        settings: of the rollouts.
        concurrency: rollouts in flight that the models can use.
        policy: the model.
        auditor: the model that looks a second time at rewards; none of the environments' roles.
    """

    def __init__(
        self,
        options: RunOptions,
        names: Sequence[str],
        file_models: Mapping[str, ModelSettings],
        broker: BrokerOptions,
        run: str,
    ) -> None:
        self.options, self.names, self.file_models, self.broker = options.model, names, file_models, broker
        self.run, self.settings, self.concurrency = run, options.rollouts.chosen(), options.concurrency
        self._role_models: dict[str, ModelSettings] = {}
        self._named_roles = parse_roles(options.roles)
        self.auditor: ModelSettings | None = None
        if options.watch.watch_rewards is not None and AUDITOR in self._named_roles:
            self.auditor = self._named_roles.pop(AUDITOR)
            if self.auditor is None:
                raise UsageError(f"the policy does not audit itself: --role {AUDITOR}=PROVIDER/NAME")
        file_model = self._file_policy()
        self.policy = parse_model(self.options, file_model)
        # The run asks the model of the system that it joins, if neither the options nor the file name one.
        self._left_open = bool(self.broker.urls) and not (self.options or file_model)
        self._asked_pool, self._agent = self.settings.model_pool, self.settings.agent
        catalogue.note_file("agents", self._agent or "")
        agent = self._agent and catalogue.known_name("agents", self._agent)  # it may be named by its file
        self.settings = replace(self.settings, agent=agent, model_pool=self.run)

    @property
    def name(self) -> str:
        """The policy, as ``PROVIDER/NAME``."""
        return f"{self.policy.provider}/{self.policy.name}"

    def resume(self, run: str) -> None:
        """Serve the models under the name of the run that is resumed.

        Attempts that a dead client left may go on: they know the model by this name.
        """
        self.run = run
        self.settings = replace(self.settings, model_pool=run)

    def pools(
        self, environments: Iterable[str], workers: int, harnesses: Iterable[str] = ()
    ) -> tuple[PoolSpec, ...]:
        """The workers to start: those of the environments, and of the models that the run starts itself.

        Args:
            workers: processes of each kind.
            harnesses: agents that rows ask for besides those of their environments.
        """
        for model in ([self.policy] if self.serves_policy else []) + [*self._role_models.values()]:
            fetch_weights(model)
        return make_pools(
            tuple(environments),
            self.policy if self.serves_policy else None,
            agents=(self._agent,) if self._agent else (),
            further_agents=() if self._agent else tuple(harnesses),
            workers=workers,
            concurrency=self.concurrency,
            model_pool=self.settings.model_pool,
            roles={self.settings.roles[role]: model for role, model in self._role_models.items()},
        )

    def choose_policy(self) -> None:
        """Take the model of the system that is joined if none was named, else have ours at hand."""
        if self._left_open:
            workers = [one for one in ask(self.broker, lambda gym: gym.workers()) if not one.draining]
            served = served_model(workers, self._asked_pool)
            if served is not None:
                self.policy = served
                self.settings = replace(self.settings, model_pool=self._asked_pool)
                terminal.note(
                    f"{self.name} answers: this system serves it as '{self._asked_pool}'; --model starts "
                    "another one"
                )
            elif self._asked_pool != POLICY:
                # Another model would answer under the name of the one that was asked for.
                [missing] = unserved(workers, models=[self._asked_pool])
                raise UsageError(missing)
            else:
                terminal.note(
                    f"{self.name} answers: no worker of this system serves '{POLICY}'; --model names another"
                )
        if self.policy.provider == "embedded":
            self.concurrency = min(self.concurrency, EMBEDDED_CONCURRENCY)
        if self.options.requests_per_minute and not self.serves_policy:
            raise UsageError(
                "--requests-per-minute is for a model that the run starts (--model PROVIDER/NAME); "
                "for a model that a system serves, set requests_per_minute in the system's file"
            )
        per_minute = self.policy.requests_per_minute
        if per_minute and self.serves_policy:
            # More rollouts in flight than requests in a minute would only wait, and use up their time.
            self.concurrency = max(1, min(self.concurrency, round(per_minute)))

    def _file_policy(self) -> ModelSettings | None:
        """The policy of the configuration file: the pool of that name, else the first that is no role's."""
        models = self.file_models
        roles = {*self._named_roles, *_declared(self.names)} if models else set[str]()
        others = [name for name in models if name not in roles]
        return models.get(POLICY) or (models[others[0]] if others else None)

    def choose_roles(self, environments: Sequence[str]) -> None:
        """Say which pool serves each role: one of ours, the policy's, or one of the system that is joined.

        Raises:
            UsageError: a role has no model, or a model was named for a role that no environment has.
        """
        named, roles = self._named_roles, _declared(environments)
        if not self.settings.agent:
            require_declared(sorted({*named, *self.settings.role_sampling}), environments)
        pools: dict[str, str] = {}
        for name in sorted(roles | named.keys()):
            model = named[name] if name in named else self.file_models.get(name)
            if model is not None:
                pools[name] = f"{self.run}-{name}"
                self._role_models[name] = model
            elif name in named:
                pools[name] = self.settings.model_pool
        missing = roles - pools.keys()
        if missing and self.broker.urls:
            workers = ask(self.broker, lambda gym: gym.workers())
            pools |= {name: name for name in missing if served_model(workers, name)}
        skipped = self.settings.skip_verification is not None
        asking = [name for name in environments if not (skipped and _asks_to_judge_only(name))]
        require_roles(asking, pools, _how_to_name)
        self.settings = replace(self.settings, roles=pools)
        if any(model.provider == "embedded" for model in self._role_models.values()):
            self.concurrency = min(self.concurrency, EMBEDDED_CONCURRENCY)

    @property
    def serves_policy(self) -> bool:
        """Whether this run starts the model that it asks."""
        return self.settings.model_pool == self.run

    def role_model(self, role: str) -> str:
        """What answers in a role, the same for every part of a run that is resumed."""
        model = self._role_models.get(role)
        if model is not None:
            return f"{model.provider}/{model.name}"
        own = self.settings.roles[role] == self.settings.model_pool
        return POLICY if own else f"pool {self.settings.roles[role]}"


def _asks_to_judge_only(name: str) -> bool:
    return catalogue.environment(name).definition.shape == "verify"


def _declared(environments: Iterable[str]) -> set[str]:
    """The roles that some environments have."""
    return {
        role.name for name in environments for role in catalogue.environment(name).definition.declared_roles
    }


def _how_to_name(role: str) -> str:
    option = "--judge " if role == "judge" else f"--role {role}="
    return f"{option}PROVIDER/NAME, or {option}policy to have the model answer for itself"
