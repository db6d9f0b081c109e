"""The options of commands that have rollouts made: ``run``, ``publish`` and ``collect``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from gym_runtime.cli.options.shared_options import (
    AT_LEAST_ONE,
    BUDGET_GROUP,
    DEFAULT_CONCURRENCY,
    FLAT,
    AgentOptions,
    Broker,
    BrokerOptions,
    FailuresAsZero,
    Input,
    Model,
    ModelOptions,
    Output,
    RequiredOutput,
    RoleOptions,
    RolePoolOptions,
    RolePools,
    Roles,
    RoleSampling,
    RowFields,
    Sampled,
    Settings,
    System,
    WeakSandbox,
    shown_name,
)
from gym_runtime.messages.rollout_settings import RolloutSettings, Sampling

RESULTS = Path("results")


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows.

    Attributes:
        limit: Take the first N rows of each file only.
        shuffle_seed: Make the rows in a random order, the same one each time for the same N and rows. What a
            row's rollouts are called does not depend on it.
        row_fields: NAME=VALUE, a field for the rows that leave it out, such as threshold=0.9; JSON or text,
            repeatable.
    """

    limit: Annotated[int | None, AT_LEAST_ONE] = None
    shuffle_seed: int | None = None
    row_fields: RowFields = ()


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What a run may use up. It stops when its finished rollouts have; those in progress come on top.

    Attributes:
        max_tokens_total: Tokens, read and written, of all parts of the run together.
        max_cost: In the currency of the prices, of all parts of the run together.
        price_in: Of a million tokens that the model reads.
        price_out: Of a million tokens that the model writes.
    """

    max_tokens_total: Annotated[int | None, AT_LEAST_ONE] = None
    max_cost: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    price_in: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    price_out: Annotated[float | None, Parameter(validator=Number(gte=0))] = None


Budgets = Annotated[BudgetOptions, Parameter(name="*", group=BUDGET_GROUP)]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What ``run`` was asked to do.

    Attributes:
        input: Dataset rows, JSONL, or - for standard input; by default the environments' example rows. With
            several environments, rows say theirs in agent_ref.
        output: The rollouts; further files are put beside it. By default results/NAME.jsonl.
        resume: Continue an interrupted run.
        extend: With --resume: more --repeats, a higher --limit, or rows added at the end of the input. What
            was made stays.
        retry_failed: With --resume: make all failed rollouts again, those that failed for good too.
        overwrite: Replace the files of an earlier run.
        role_sampling: ROLE.FIELD=VALUE, how the model of a role samples, such as judge.temperature=0;
            repeatable. It replaces what the environment says.
        agent_options: NAME=VALUE, an option of the agent, such as max_time_s=600; repeatable. It replaces
            what the environment says.
        keep_going: Do not stop when the engine returns only errors.
        track: An experiment tracker that is told of the run every few seconds and at its end: aggregates and
            a few rollouts as examples. TensorBoard's files are put beside the output, as NAME_tensorboard;
            the others are told where by their own variables, such as WANDB_MODE and MLFLOW_TRACKING_URI.
        json: Print one JSON document, for programs.
        concurrency: Rollouts in flight, over all agent workers.
        workers: Processes of each kind.
        state_dir: Where a private broker keeps its queue; by default a temporary directory.
        allow_weak_sandbox: Where this machine cannot isolate, run code with limits only; GYM_SANDBOX=weak
            does so in any case.
        config: Take the broker and the model from a system's file ('gym-runtime start --help'). Options
            given here win.
    """

    names: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    input: Input = None
    output: Output = None
    resume: bool = False
    extend: bool = False
    retry_failed: bool = False
    overwrite: bool = False
    keep_going: bool = False
    track: Literal["wandb", "mlflow", "tensorboard", "trackio"] | None = None
    json: bool = False
    failures_as_zero: FailuresAsZero = False
    rows: Annotated[RowOptions, FLAT] = RowOptions()
    settings: Settings = RolloutSettings()
    sampling: Sampled = Sampling()
    budget: Budgets = BudgetOptions()
    model: Model = ModelOptions()
    roles: Roles = RoleOptions()
    role_sampling: RoleSampling = ()
    agent_options: AgentOptions = ()
    broker: Broker = BrokerOptions()
    concurrency: Annotated[int, System, AT_LEAST_ONE] = DEFAULT_CONCURRENCY
    workers: Annotated[int, System, AT_LEAST_ONE] = 1
    state_dir: Annotated[str, System, Parameter(show_default=False)] = ""
    allow_weak_sandbox: WeakSandbox = False
    config: Annotated[Path | None, System] = None

    @property
    def output_path(self) -> Path:
        """Where the rollouts go: as said, else ``results/`` and the environments' or the input's name."""
        if self.output is not None:
            return self.output
        stem = "-".join(map(shown_name, self.names)) or (self.input.stem if self.input else "run")
        return RESULTS / f"{stem}.jsonl"


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """What ``publish`` was asked to do.

    Attributes:
        environment: The environment of rows that do not say theirs in agent_ref.
        role_sampling: ROLE.FIELD=VALUE, how the model of a role samples, such as judge.temperature=0;
            repeatable. It replaces what the environment says.
        agent_options: NAME=VALUE, an option of the agent, such as max_time_s=600; repeatable. It replaces
            what the environment says.
    """

    input: Annotated[Path, Parameter(parse=False)] = Path()
    environment: str | None = None
    rows: Annotated[RowOptions, FLAT] = RowOptions()
    settings: Settings = RolloutSettings()
    sampling: Sampled = Sampling()
    roles: RolePools = RolePoolOptions()
    role_sampling: RoleSampling = ()
    agent_options: AgentOptions = ()
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class GymServerOptions:
    """What ``gym-server`` was asked to do.

    Attributes:
        host: Where to listen. Beyond this machine clients need the key, which GYM_SERVER_KEY has or which is
            made.
        port: 0 lets the system choose; NeMo Gym's head server has 11000.
        print_config: Print the YAML of external agents for NeMo Gym's config_paths, and serve nothing.
    """

    environments: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 11000
    print_config: bool = False
    settings: Settings = RolloutSettings()
    sampling: Sampled = Sampling()
    roles: RolePools = RolePoolOptions()
    role_sampling: RoleSampling = ()
    agent_options: AgentOptions = ()
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """What ``collect`` was asked to do.

    Attributes:
        output: The rollouts.
        json: Print one JSON document, for programs.
    """

    run: Annotated[str, Parameter(parse=False)] = ""
    output: RequiredOutput
    json: bool = False
    failures_as_zero: FailuresAsZero = False
    broker: Broker = BrokerOptions()
