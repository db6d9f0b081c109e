"""What options of several commands are made of: types, groups of the help, and which broker and models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from gym_runtime.messages.rollout_settings import RolloutSettings, Sampling

DEFAULT_MODEL = "embedded/smollm2-135m"
DEFAULT_CONCURRENCY = 1024
EMBEDDED_CONCURRENCY = 16
"""More rollouts in flight than the embedded engine has slots would only wait, and use up their time."""
FLAT = Parameter(name="*")
ROLLOUTS_GROUP, SAMPLING_GROUP, BUDGET_GROUP, MODEL_GROUP, SYSTEM_GROUP = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Rollouts", "Sampling", "Budget", "Model", "System"))
)
AT_LEAST_ONE = Parameter(validator=Number(gte=1))

Settings = Annotated[
    RolloutSettings,
    # The sampling, the roles and the agent's options have flags of their own.
    Parameter(
        name="*", group=ROLLOUTS_GROUP, parse=re.compile("^(?!(sampling|roles|role_sampling|agent_options)$)")
    ),
]
Input = Annotated[Path | None, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)]
Output = Annotated[Path | None, Parameter(name=["--output", "-o"])]
RequiredOutput = Annotated[Path, Parameter(name=["--output", "-o"])]
RoleSampling = Annotated[
    tuple[str, ...], Parameter(name="--role-sampling", group=MODEL_GROUP, show_default=False)
]
AgentOptions = Annotated[
    tuple[str, ...], Parameter(name="--agent-set", group=ROLLOUTS_GROUP, show_default=False)
]
RowFields = Annotated[tuple[str, ...], Parameter(name="--set")]
AsJson = Annotated[bool, Parameter(help="Print one JSON document, for programs.")]
FailuresAsZero = Annotated[
    bool,
    Parameter(
        help="Count failed rollouts with a reward of 0 in means and pass@k, shown and in files of metrics. "
        "Their rows get no reward; cancelled rollouts do not count."
    ),
]
Everything = Annotated[bool, Parameter(name="--all")]


def shown_name(name: str) -> str:
    """The name of an environment as the user has written it, as a part of a file's name.

    >>> shown_name("path/to/sums.py"), shown_name("nemo-gym:http://127.0.0.1:8000/mcqa")
    ('sums', 'nemo-gym_127_0_0_1_8000_mcqa')
    """
    scheme, separator, address = name.partition(":")
    if not separator or "." in scheme:
        return Path(name).stem
    return re.sub(r"[^\w-]+", "_", f"{scheme}_{address.partition('://')[2] or address}").strip("_")


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Which system.

    Attributes:
        nats: The broker of a running system: a join file of 'gym-runtime broker', or a URL, or several of a
            cluster separated by commas. 'run' starts
            workers of its own there, and without --model asks the model that the system serves. A URL with
            a password belongs in the variable. GYM_NATS_CREDENTIALS names a file with an NKey seed or a
            .creds file, GYM_NATS_CA the certificate authority of tls:// URLs.
        prefix: Tells systems that share a broker apart.
    """

    nats: Annotated[str, Parameter(env_var="GYM_NATS_URL", show_default=False)] = ""
    prefix: str = "gym"

    @property
    def urls(self) -> tuple[str, ...]:
        return parse_urls(self.nats)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and where it is.

    Attributes:
        model: PROVIDER/NAME: openai/NAME, embedded/NAME, scripted/NAME and others; 'gym-runtime ls models'
            lists them. By default embedded/smollm2-135m.
        model_urls: Where the model is served, such as http://127.0.0.1:8000/v1; once per replica.
        model_api: responses, chat, or auto to take the Responses API where there is one.
        engine_args: Arguments of an engine that the worker starts itself (vllm without --model-url), such as
            '--max-model-len 4096'.
        requests_per_minute: Requests to the engine at most, shared by the model workers that are started
            here. They are spread evenly over the minute.
    """

    model: Annotated[str, Parameter(show_default=False)] = ""
    model_urls: Annotated[tuple[str, ...], Parameter(name="--model-url", show_default=False)] = ()
    model_api: Literal["auto", "responses", "chat"] = "auto"
    engine_args: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = ""
    requests_per_minute: Annotated[float | None, Parameter(validator=Number(gt=0))] = None

    def __bool__(self) -> bool:
        """Whether anything was said of a model."""
        return bool(self.model or self.model_urls or self.engine_args)


@dataclass(frozen=True, kw_only=True)
class RoleOptions:
    """Which models answer in the roles of an environment.

    Attributes:
        judge: PROVIDER/NAME of the model in the role 'judge'; 'policy' to have the model judge itself.
        roles: NAME=PROVIDER/NAME, the same for any role of the environments; repeatable.
        role_urls: NAME=URL, where the model of a role is served; once per replica.
    """

    judge: Annotated[str, Parameter(show_default=False)] = ""
    roles: Annotated[tuple[str, ...], Parameter(name="--role", show_default=False)] = ()
    role_urls: Annotated[tuple[str, ...], Parameter(name="--role-url", show_default=False)] = ()


@dataclass(frozen=True, kw_only=True)
class RolePoolOptions:
    """Which workers of a running system answer in the roles of an environment.

    Attributes:
        judge: The model pool for the role 'judge'; by default the one of that name.
        roles: NAME=POOL, the same for any role of the environments; repeatable.
    """

    judge: Annotated[str, Parameter(show_default=False)] = ""
    roles: Annotated[tuple[str, ...], Parameter(name="--role", show_default=False)] = ()


Sampled = Annotated[Sampling, Parameter(name="*", group=SAMPLING_GROUP)]
Broker = Annotated[BrokerOptions, Parameter(name="*", group=SYSTEM_GROUP)]
Model = Annotated[ModelOptions, Parameter(name="*", group=MODEL_GROUP)]
Roles = Annotated[RoleOptions, Parameter(name="*", group=MODEL_GROUP)]
RolePools = Annotated[RolePoolOptions, Parameter(name="*", group=MODEL_GROUP)]
System = Parameter(group=SYSTEM_GROUP)
WeakSandbox = Annotated[bool, Parameter(name="--allow-weak-sandbox", group=SYSTEM_GROUP)]


def parse_urls(text: str | None) -> tuple[str, ...]:
    """One or several URLs, separated by commas."""
    return tuple(url.strip() for url in (text or "").split(",") if url.strip())
