"""Options that several commands share, each declared once with its default, its bounds and its help.

The command line library (cyclopts) makes flags of parameters and fields, and help of docstrings. A group of
options is a frozen dataclass; the constant beside it, such as `BROKER`, is the group with no option given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.messages.rollout_settings import MOST_REPEATS, RolloutSettings, Sampling

POLICY = "policy"
"""The model that rollouts ask for by default; as the model of a role, the policy itself."""
DEFAULT_CONCURRENCY = 1024

FLAT = Parameter(name="*")
AT_LEAST_ONE = Parameter(validator=Number(gte=1))
REPEATS = Parameter(validator=Number(gte=1, lte=MOST_REPEATS))
NOT_NEGATIVE = Parameter(validator=Number(gte=0))
POSITIVE = Parameter(validator=Number(gt=0))
HIDDEN_DEFAULT = Parameter(show_default=False)


def _model_name(_: object, tokens: Sequence[Token]) -> str:
    """A variable of a shell that is not set must not choose the default model."""
    if not tokens[0].value:
        raise ValueError("it is empty; give PROVIDER/NAME, or leave the option out")
    return tokens[0].value


def _path(_: object, tokens: Sequence[Token]) -> Path:
    """Likewise: an empty path is the current folder."""
    if not tokens[0].value:
        raise ValueError("it is empty; name a path")
    return Path(tokens[0].value)


MODEL_NAME = Parameter(show_default=False, converter=_model_name)
ROLLOUTS_GROUP, SAMPLING_GROUP, BUDGET_GROUP, MODEL_GROUP, SYSTEM_GROUP = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Rollouts", "Sampling", "Budget", "Model", "System"))
)
SYSTEM = Parameter(group=SYSTEM_GROUP)

Input = Annotated[Path | None, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)]
OUTPUT = Parameter(name=["--output", "-o"], converter=_path)
Output = Annotated[Path | None, OUTPUT]
RequiredOutput = Annotated[Path, OUTPUT]
RowFields = Annotated[tuple[str, ...], Parameter(name="--set")]
Everything = Annotated[bool, Parameter(name="--all")]
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
AsJson = Annotated[bool, Parameter(help="Print one JSON document, for programs.")]
FailuresAsZero = Annotated[
    bool,
    Parameter(
        help="Count failed rollouts with a reward of 0 in means and pass@k, shown and in files of metrics. "
        "Their rows get no reward; cancelled rollouts do not count."
    ),
]
FailOnFailures = Annotated[
    bool,
    Parameter(help="Exit with status 1 if any rollout failed; by default only if no rollout has a reward."),
]
Hosted = Annotated[bool, Parameter(group=SYSTEM_GROUP, negative="")]
WeakSandbox = Annotated[
    bool,
    Parameter(
        name="--allow-weak-sandbox",
        group=SYSTEM_GROUP,
        help="Where this machine cannot isolate, run code with limits only; GYM_SANDBOX=weak does so in any "
        "case.",
    ),
]
StateDir = Annotated[
    str,
    Parameter(
        group=SYSTEM_GROUP,
        show_default=False,
        help="Where a private broker keeps its queue; by default a temporary directory.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Which system.

    Attributes:
        nats: The broker of a running system: a join file of 'gym-runtime broker', or a URL, or several of a
            cluster separated by commas. 'run' starts its own workers there, and without --model uses the
            model that the system serves; other commands start none. Put a URL with a password into the
            variable, not on the command line. GYM_NATS_CREDENTIALS names a file with an NKey seed or a .creds
            file, GYM_NATS_CA the certificate authority of tls:// URLs.
        prefix: Tells systems that share a broker apart.
    """

    nats: Annotated[str, Parameter(env_var="GYM_NATS_URL", show_default=False)] = ""
    prefix: str = "gym"

    @property
    def urls(self) -> tuple[str, ...]:
        """The broker's addresses; none if no system was named."""
        return parse_urls(self.nats)

    def required(self) -> tuple[str, ...]:
        """The broker's addresses, for commands that join a running system.

        Raises:
            UsageError: none was given.
        """
        if not self.urls:
            raise UsageError(
                "which system? Name it with --nats URL or the environment variable GYM_NATS_URL; "
                "'gym-runtime start' starts one and prints its URL"
            )
        return self.urls


Broker = Annotated[BrokerOptions, Parameter(name="*", group=SYSTEM_GROUP)]
BROKER = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and where it is.

    Attributes:
        model: PROVIDER/NAME: openai/NAME, embedded/NAME, scripted/NAME and others; 'gym-runtime ls models'
            lists them. By default embedded/smollm2-135m.
        model_urls: Where the model is served, such as http://127.0.0.1:8000/v1; once per replica.
        model_api: responses, chat, or auto to take the Responses API where the engine has it; completions for
            base models, whose text goes on from the row's.
        engine_args: Arguments of an engine that the worker starts itself (vllm without --model-url), such as
            '--max-model-len 4096'.
        requests_per_minute: Requests to the engine at most, shared by the model workers that are started
            here. They are spread evenly over the minute.
    """

    model: Annotated[str, MODEL_NAME] = ""
    model_urls: Annotated[tuple[str, ...], Parameter(name="--model-url", show_default=False)] = ()
    model_api: Literal["auto", "responses", "chat", "completions"] = "auto"
    engine_args: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = ""
    requests_per_minute: Annotated[float | None, POSITIVE] = None

    def __bool__(self) -> bool:
        """Whether anything was said of a model."""
        return bool(self.model or self.model_urls or self.engine_args)


Model = Annotated[ModelOptions, Parameter(name="*", group=MODEL_GROUP)]
MODEL = ModelOptions()


@dataclass(frozen=True, kw_only=True)
class RoleOptions:
    """Which models answer in the roles of an environment.

    Attributes:
        judge: PROVIDER/NAME of the model in the role 'judge'; 'policy' to have the model judge itself.
        roles: NAME=PROVIDER/NAME, the same for any role of the environments; repeatable.
        role_urls: NAME=URL, where the model of a role is served; once per replica.
    """

    judge: Annotated[str, MODEL_NAME] = ""
    roles: Annotated[tuple[str, ...], Parameter(name="--role", show_default=False)] = ()
    role_urls: Annotated[tuple[str, ...], Parameter(name="--role-url", show_default=False)] = ()


Roles = Annotated[RoleOptions, Parameter(name="*", group=MODEL_GROUP)]
ROLES = RoleOptions()


@dataclass(frozen=True, kw_only=True)
class RolePoolOptions:
    """Which workers of a running system answer in the roles of an environment.

    Attributes:
        judge: The model pool for the role 'judge'; by default the one of that name.
        roles: NAME=POOL, the same for any role of the environments; repeatable.
    """

    judge: Annotated[str, MODEL_NAME] = ""
    roles: Annotated[tuple[str, ...], Parameter(name="--role", show_default=False)] = ()

    def pools(self) -> dict[str, str]:
        """The pools that were named, by role.

        Raises:
            UsageError: an option is not of its form, or names a role twice.
        """
        named = named_values("--role", self.roles, "POOL", judge=self.judge)
        for role, pools in named.items():
            if len(pools) > 1:
                raise UsageError(f"--role {role}=…: the role has a pool already")
        return {role: pools[0] for role, pools in named.items()}


RolePools = Annotated[RolePoolOptions, Parameter(name="*", group=MODEL_GROUP)]
ROLE_POOLS = RolePoolOptions()

_Settings = Annotated[
    RolloutSettings,
    # The sampling, the roles, the agent's options and the repeats have their own flags.
    Parameter(
        name="*",
        group=ROLLOUTS_GROUP,
        parse=re.compile("^(?!(sampling|roles|role_sampling|agent_options|repeats)$)"),
    ),
]
_SETTINGS, _SAMPLING = RolloutSettings(), Sampling()


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """How rollouts are run.

    Attributes:
        role_sampling: ROLE.FIELD=VALUE, how the model of a role samples, such as judge.temperature=0;
            repeatable. It replaces the environment's setting.
        agent_options: NAME=VALUE, an option of the agent, such as max_time_s=600; repeatable. It replaces
            the environment's setting.
        repeats: N or NAME=N, rollouts per row, of all environments or of one; repeatable. By default 1, or as
            many as a benchmark's authors use.
    """

    settings: _Settings = _SETTINGS
    sampling: Annotated[Sampling, Parameter(name="*", group=SAMPLING_GROUP)] = _SAMPLING
    role_sampling: Annotated[
        tuple[str, ...], Parameter(name="--role-sampling", group=MODEL_GROUP, show_default=False)
    ] = ()
    agent_options: Annotated[
        tuple[str, ...], Parameter(name="--agent-set", group=ROLLOUTS_GROUP, show_default=False)
    ] = ()
    repeats: Annotated[tuple[str, ...], Parameter(group=ROLLOUTS_GROUP, show_default=False)] = ()

    def chosen(self, **changes: Any) -> RolloutSettings:
        """The settings of the rollouts, all flags included; ``changes`` are further fields.

        Raises:
            UsageError: a value is out of its bounds or not of its form. The rows would show some of that,
                too, but only once a system is up.
        """
        # Here, not above: the help is shown without these modules.
        from gym_runtime.environment.settings import check_role_sampling
        from gym_runtime.files.rows import check_sampling

        sampling = {name: value for name, value in vars(self.sampling).items() if value is not None}
        for name in sampling.keys() & {"chat_template_kwargs", "extra_body"}:
            sampling[name] = _read(sampling[name])  # cyclopts reads their values as text
        check_sampling(sampling)
        roles: dict[str, dict[str, Any]] = {}
        form = "ROLE.FIELD=VALUE"
        for name, value in parse_row_fields(self.role_sampling, "--role-sampling", form).items():
            role, _, field = name.partition(".")
            if not (role and field):
                raise UsageError(f"--role-sampling {name}=…: write it as {form}")
            roles.setdefault(role, {})[field] = value
        check_role_sampling(roles)
        return replace(
            self.settings,
            sampling=sampling,
            role_sampling=roles,
            agent_options=parse_row_fields(self.agent_options, "--agent-set"),
            repeats=_repeats(self.repeats),
            **changes,
        )


def _repeats(given: tuple[str, ...]) -> int | dict[str, int] | None:
    """``N``, or ``NAME=N`` s.

    Raises:
        UsageError: it is neither, or both.
    """
    if len(given) == 1 and given[0].isascii() and given[0].isdigit():
        return int(given[0])
    found = parse_row_fields(given, "--repeats", "N, or NAME=N for each of some environments")
    return found or None


RolloutsAsked = Annotated[RolloutOptions, FLAT]
ROLLOUTS = RolloutOptions()


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows.

    Attributes:
        limit: Take the first N rows of each file only.
        shuffle_seed: Run the rows in a random order, which N and the rows determine. The numbers of a row's
            rollouts do not depend on it.
        row_fields: NAME=VALUE, a field for the rows that leave it out, such as threshold=0.9; JSON or text,
            repeatable.
        strict: As --set strict=true, for the environments that have a stricter rule than NeMo Gym's or a
            benchmark's authors; says which have none.
        skip_unknown: Leave out rows whose agent_ref names no environment that is installed, and list them.
        prompt: A YAML or TOML template that makes each row's input of its fields, in place of the input that
            it has; or nemo-gym, for benchmarks that have NeMo Gym's prompt beside the usual one. Rows of a
            benchmark without an input get its own prompt in any case.
    """

    limit: Annotated[int | None, AT_LEAST_ONE] = None
    shuffle_seed: int | None = None
    row_fields: RowFields = ()
    strict: Annotated[bool, Parameter(negative="")] = False
    skip_unknown: Annotated[bool, Parameter(negative="")] = False
    prompt: Annotated[str, Parameter(show_default=False)] = ""

    def settings(self) -> dict[str, Any]:
        """The fields for rows that leave them out, by their names.

        Raises:
            UsageError: as `parse_row_fields`.
        """
        return {**({"strict": True} if self.strict else {}), **parse_row_fields(self.row_fields)}


Rows = Annotated[RowOptions, FLAT]
ROWS = RowOptions()


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """A second look at rewards.

    Attributes:
        watch_rewards: Look a second time at a share of the rewarded rollouts (0.03), at so many of each
            version of the weights (20), or at as many as 3 % of the processors allow (auto), and ring when
            rewards are no longer confirmed. Alarms are also put beside the output, as NAME_alarms.jsonl.
        second_look: The environment of the second look, by name or path: it judges the same rows, more
            strictly. By default the model of --role auditor=PROVIDER/NAME, if there is one; else the
            environment itself, by its strict rule or asked of changed replies.
        stop_on_alarm: Stop the run at an alarm.

    Raises:
        UsageError: nothing is watched.
    """

    watch_rewards: str | None = None
    second_look: str = ""
    stop_on_alarm: bool = False

    def __post_init__(self) -> None:
        if self.watch_rewards is None and (self.second_look or self.stop_on_alarm):
            raise UsageError(
                "--second-look and --stop-on-alarm need --watch-rewards, such as --watch-rewards auto"
            )


Watch = Annotated[WatchOptions, FLAT]
WATCH = WatchOptions()


# -- texts --------------------------------------------------------------------------------------------


def shown_name(name: str) -> str:
    """The name of an environment as the user has written it, as a part of a file's name.

    >>> shown_name("path/to/sums.py"), shown_name("nemo-gym:http://127.0.0.1:8000/mcqa")
    ('sums', 'nemo-gym_127_0_0_1_8000_mcqa')
    """
    scheme, separator, address = name.partition(":")
    if not separator or "." in scheme:
        return Path(name).stem
    return re.sub(r"[^\w-]+", "_", f"{scheme}_{address.partition('://')[2] or address}").strip("_")


def parse_urls(text: str | None) -> tuple[str, ...]:
    """One or several URLs, separated by commas."""
    return tuple(url.strip() for url in (text or "").split(",") if url.strip())


def parse_row_fields(given: Iterable[str], option: str = "--set", form: str = "NAME=VALUE") -> dict[str, Any]:
    """``NAME=VALUE`` s; a value is JSON where it can be read as such, else the text itself.

    Raises:
        UsageError: one is not of this form, or a name comes twice.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {text}: write it as {form}")
        if name in found:
            raise UsageError(f"{option} {text}: '{name}' has a value already")
        found[name] = _read(value)
    return found


def _read(value: Any) -> Any:
    """A value as JSON where its text can be read as such, also within a list or an object."""
    if isinstance(value, dict):
        return {name: _read(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_read(each) for each in cast("list[Any]", value)]
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except UNREADABLE:
        return value


def named_values(option: str, given: Iterable[str], what: str, judge: str = "") -> dict[str, list[str]]:
    """The values of ``NAME=VALUE`` s, by name; ``judge`` is one more of that name.

    Raises:
        UsageError: one is not of this form.
    """
    found: dict[str, list[str]] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise UsageError(f"{option} {text}: write it as NAME={what}")
        found.setdefault(name, []).append(value)
    if judge:
        found.setdefault("judge", []).append(judge)
    return found
