"""The options of every command: each is declared once, as a field with its default, its bounds and its help.

The command line library (cyclopts) makes flags of the fields and help of the docstrings. What a run asks of
its rollouts is in `gym_runtime.messages.rollout_settings`. This module is imported for ``--help``, so it
imports nothing heavy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from gym_runtime.messages.rollout_settings import RolloutSettings
from gym_runtime.messages.sampling import Sampling

DEFAULT_MODEL = "embedded/smollm2-135m"
DEFAULT_CONCURRENCY = 1024
EMBEDDED_CONCURRENCY = 16
"""More rollouts in flight than the embedded engine has slots would only wait, and use up their time."""
RESULTS = Path("results")

FLAT = Parameter(name="*")
_ROLLOUTS, _SAMPLING, _BUDGET, _MODEL, _SYSTEM = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Rollouts", "Sampling", "Budget", "Model", "System"))
)
_AT_LEAST_ONE = Parameter(validator=Number(gte=1))

Settings = Annotated[
    RolloutSettings,
    # The sampling and the roles have flags of their own.
    Parameter(name="*", group=_ROLLOUTS, parse=re.compile("^(?!(sampling|roles|role_sampling)$)")),
]
Input = Annotated[Path | None, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)]
Output = Annotated[Path | None, Parameter(name=["--output", "-o"])]
RequiredOutput = Annotated[Path, Parameter(name=["--output", "-o"])]
RoleSampling = Annotated[tuple[str, ...], Parameter(name="--role-sampling", group=_MODEL, show_default=False)]
RowFields = Annotated[tuple[str, ...], Parameter(name="--set")]
AsJson = Annotated[bool, Parameter(help="Print one JSON document, for programs.")]
Everything = Annotated[bool, Parameter(name="--all")]


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


Sampled = Annotated[Sampling, Parameter(name="*", group=_SAMPLING)]
Broker = Annotated[BrokerOptions, Parameter(name="*", group=_SYSTEM)]
Model = Annotated[ModelOptions, Parameter(name="*", group=_MODEL)]
Roles = Annotated[RoleOptions, Parameter(name="*", group=_MODEL)]
RolePools = Annotated[RolePoolOptions, Parameter(name="*", group=_MODEL)]
System = Parameter(group=_SYSTEM)


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

    limit: Annotated[int | None, _AT_LEAST_ONE] = None
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

    max_tokens_total: Annotated[int | None, _AT_LEAST_ONE] = None
    max_cost: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    price_in: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    price_out: Annotated[float | None, Parameter(validator=Number(gte=0))] = None


Budgets = Annotated[BudgetOptions, Parameter(name="*", group=_BUDGET)]


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
        overwrite: Replace the files of an earlier run.
        role_sampling: ROLE.FIELD=VALUE, how the model of a role samples, such as judge.temperature=0;
            repeatable. It replaces what the environment says.
        keep_going: Do not stop when the engine returns only errors.
        track: An experiment tracker that is told of the run every few seconds and at its end: aggregates and
            a few rollouts as examples. TensorBoard's files are put beside the output, as NAME_tensorboard;
            the others are told where by their own variables, such as WANDB_MODE and MLFLOW_TRACKING_URI.
        json: Print one JSON document, for programs.
        concurrency: Rollouts in flight, over all agent workers.
        workers: Processes of each kind.
        state_dir: Where a private broker keeps its queue; by default a temporary directory.
        config: Take the broker and the model from a system's file ('gym-runtime start --help'). Options
            given here win.
    """

    names: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    input: Input = None
    output: Output = None
    resume: bool = False
    extend: bool = False
    overwrite: bool = False
    keep_going: bool = False
    track: Literal["wandb", "mlflow", "tensorboard", "trackio"] | None = None
    json: bool = False
    rows: Annotated[RowOptions, FLAT] = RowOptions()
    settings: Settings = RolloutSettings()
    sampling: Sampled = Sampling()
    budget: Budgets = BudgetOptions()
    model: Model = ModelOptions()
    roles: Roles = RoleOptions()
    role_sampling: RoleSampling = ()
    broker: Broker = BrokerOptions()
    concurrency: Annotated[int, System, _AT_LEAST_ONE] = DEFAULT_CONCURRENCY
    workers: Annotated[int, System, _AT_LEAST_ONE] = 1
    state_dir: Annotated[str, System, Parameter(show_default=False)] = ""
    config: Annotated[Path | None, System] = None

    @property
    def output_path(self) -> Path:
        """Where the rollouts go: as said, else ``results/`` and the environments' or the input's name."""
        if self.output is not None:
            return self.output
        stem = "-".join(Path(name).stem for name in self.names) or (self.input.stem if self.input else "run")
        return RESULTS / f"{stem}.jsonl"


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """What ``publish`` was asked to do.

    Attributes:
        environment: The environment of rows that do not say theirs in agent_ref.
        role_sampling: ROLE.FIELD=VALUE, how the model of a role samples, such as judge.temperature=0;
            repeatable. It replaces what the environment says.
    """

    input: Annotated[Path, Parameter(parse=False)] = Path()
    environment: str | None = None
    rows: Annotated[RowOptions, FLAT] = RowOptions()
    settings: Settings = RolloutSettings()
    sampling: Sampled = Sampling()
    roles: RolePools = RolePoolOptions()
    role_sampling: RoleSampling = ()
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """What ``start`` was asked to do.

    Attributes:
        config: A system described in TOML, of which POOLs pick a part. Options given here win.
        concurrency: Rollouts in flight, over all agent workers; by default 1024.
        workers: Processes of each kind; by default 1.
        nats: The broker to join, as for 'gym-runtime run'; by default one is started.
        prefix: Tells systems that share a broker apart; by default gym.
        state_dir: Where a private broker keeps its queue; by default a temporary directory.
        metrics: Serve the metrics of the whole system for Prometheus at this port of 127.0.0.1; 0 lets the
            system choose.
        wait_s: Seconds to wait for a broker, its streams and engines that are not there yet; inf for ever. By
            default what is not there is an error.
        drain_s: Seconds that rollouts may take to finish when the workers stop; by default 25, for platforms
            that kill after 30.
    """

    pools: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    config: Path | None = None
    model: Model = ModelOptions()
    roles: Roles = RoleOptions()
    concurrency: Annotated[int | None, System, _AT_LEAST_ONE] = None
    workers: Annotated[int | None, System, _AT_LEAST_ONE] = None
    nats: Annotated[str, System, Parameter(env_var="GYM_NATS_URL", show_default=False)] = ""
    prefix: Annotated[str, System, Parameter(show_default=False)] = ""
    state_dir: Annotated[str, System, Parameter(show_default=False)] = ""
    metrics: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None
    wait_s: Annotated[
        float, System, Parameter(env_var="GYM_WAIT_S", show_default=False, validator=Number(gte=0))
    ] = 0.0
    drain_s: Annotated[
        float | None, System, Parameter(env_var="GYM_DRAIN_S", show_default=False, validator=Number(gte=0))
    ] = None


@dataclass(frozen=True, kw_only=True)
class BrokerStartOptions:
    """What ``broker`` was asked to do.

    Attributes:
        folder: For keys, configuration and streams; it is made if need be, and what is there is kept. The
            nodes of a cluster share it, or have copies.
        listen: HOST:PORT for clients and workers.
        hosts: A name or address by which they reach it; repeatable, the first one stands in the join files.
            By default this machine's name.
        nodes: The hosts of all brokers of a cluster, separated by commas: three, so that one may fail.
        node: Which of them this one is; by default this machine's name.
        monitor: HOST:PORT of its statistics. Everybody who reaches it may read them.
        prefix: Of the system's subjects; one broker's identities are for one system.
        linger_s: Seconds that it stays after SIGTERM for workers that still finish their work.
        keys_only: Make the keys and join files, and start nothing.
    """

    folder: Annotated[Path, Parameter(name="--dir")] = Path("gym-broker")
    listen: str = "0.0.0.0:4222"
    hosts: Annotated[tuple[str, ...], Parameter(name="--host", show_default=False)] = ()
    nodes: Annotated[str, Parameter(show_default=False)] = ""
    node: Annotated[str, Parameter(show_default=False)] = ""
    monitor: str = "127.0.0.1:8222"
    prefix: str = "gym"
    linger_s: Annotated[float, Parameter(validator=Number(gte=0))] = 28.0
    keys_only: bool = False


@dataclass(frozen=True, kw_only=True)
class DeployOptions:
    """What ``deploy init`` was asked to write.

    Attributes:
        folder: Where the files go.
        image: The container image.
        package: What pip installs into it, with extras.
        environments: An environment to serve; repeatable.
        model: PROVIDER/NAME.
        model_urls: Where the model is served; once per replica.
        concurrency: Rollouts in flight per agent worker.
        prefix: Tells systems that share a broker apart.
        overwrite: Replace files that are there.
    """

    folder: Annotated[Path, Parameter(name="--dir")] = Path("deploy")
    image: str = "localhost/gym-runtime"
    package: str = "gym-runtime"
    environments: Annotated[tuple[str, ...], Parameter(name="--environment")] = ("mcqa",)
    model: str = "scripted/message"
    model_urls: Annotated[tuple[str, ...], Parameter(name="--model-url", show_default=False)] = ()
    concurrency: Annotated[int, _AT_LEAST_ONE] = 256
    prefix: str = "gym"
    overwrite: bool = False


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
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """What ``gateway`` was asked to do.

    Attributes:
        host: Where to listen; every program that reaches it may use the models.
        port: 0 lets the system choose.
        model_pool: A model pool that clients may name as their model; the first serves all other names.
        output: Write each captured call here as well, JSONL.
        return_tokens: Put token ids and log-probabilities on the captured calls.
        concurrency: Calls in progress; more are answered 429.
        timeout_s: Seconds that one call may take.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 0
    model_pool: tuple[str, ...] = ("policy",)
    output: Output = None
    return_tokens: bool = False
    concurrency: Annotated[int, _AT_LEAST_ONE] = 1024
    timeout_s: Annotated[float, Parameter(validator=Number(gt=0))] = 600.0
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """What ``metrics`` was asked to do.

    Attributes:
        host: Where to listen; every program that reaches it may read the metrics.
        port: 0 lets the system choose.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 9464
    broker: Broker = BrokerOptions()


@dataclass(frozen=True, kw_only=True)
class ReverifyOptions:
    """What ``reverify`` was asked to do.

    Attributes:
        rollouts: Stored rows, ours or NeMo Gym's. What models answered in roles is taken from them, but for
            the roles that are named here, whose models are asked again.
        output: The rows with their new rewards.
        inputs: The run's *_materialized_inputs.jsonl, or its dataset, for fields that the rows lack;
            repeatable.
        row_fields: NAME=VALUE, a field for the rows that leave it out; JSON or text, repeatable.
        concurrency: Rows judged at once.
        strict: A reward that differs from the recorded one makes the exit status 1.
        resume: Continue an interrupted re-verification.
        json: Print one JSON document, for programs.
    """

    name: Annotated[str | None, Parameter(parse=False)] = None
    rollouts: Path
    output: RequiredOutput
    inputs: tuple[Path, ...] = ()
    row_fields: RowFields = ()
    concurrency: Annotated[int, _AT_LEAST_ONE] = 8
    strict: bool = False
    resume: bool = False
    json: bool = False
    roles: Roles = RoleOptions()


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """What ``merge`` was asked to do.

    Attributes:
        output: The rollouts; further files are put beside it.
        overwrite: Replace the files that are there.
        json: Print one JSON document, for programs.
    """

    rollouts: Annotated[tuple[Path, ...], Parameter(parse=False)] = ()
    output: RequiredOutput
    overwrite: bool = False
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What ``bench`` was asked to do.

    Attributes:
        everything: Measure every environment that can run here.
        seconds: How long to measure each environment.
        row_fields: NAME=VALUE, a field for the rows that leave it out; JSON or text, repeatable.
        rollouts: How many rollouts "system" makes in each of its runs.
        in_flight: How many of them "system" has in flight.
        engine_s: How long the engine of "system" takes for an answer, in seconds.
        workers: How many processes of each kind "system" starts.
        json: Print one JSON document, for programs.
    """

    names: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    everything: Everything = False
    seconds: Annotated[float, Parameter(validator=Number(gt=0))] = 1.0
    row_fields: RowFields = ()
    rollouts: Annotated[int, Parameter(validator=Number(gte=1))] = 2000
    in_flight: Annotated[int, Parameter(validator=Number(gte=1))] = 256
    engine_s: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0
    workers: Annotated[int, Parameter(validator=Number(gte=1))] = 1
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """What ``prepare`` was asked to do.

    Attributes:
        split: train, validation or example; repeatable. By default train.
        output: The folder to fill, and the only one that is written to; by default data/NAME.
        source: huggingface, file or generate; by default file if there is an --input, else what the
            environment offers. The hub takes HF_TOKEN and HF_ENDPOINT.
        input_file: The rows, JSONL; with several NAMEs, NAME=FILE.
        prompt: A YAML or TOML file that makes the input of the rows' fields.
        weight: NAME=W, shares of a blend; by default the rows there are.
        repeats: NAME=K, how often each row comes, one after the other.
        seed: Of the blend, of samples and of generated rows.
        size: Rows in all, before repeats; by default all.
        settings: KEY=VALUE, a setting of the environment's generator.
        overwrite_metrics_conflicts: The data may differ from its stored metrics.
        assets: Fetch the files that rows of NAME need, and no rows.
        json: Print one JSON document, for programs.
    """

    names: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    split: tuple[str, ...] = ()
    output: Output = None
    source: Literal["huggingface", "file", "generate"] | None = None
    input_file: Annotated[tuple[str, ...], Parameter(name=["--input", "-i"])] = ()
    prompt: Path | None = None
    weight: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    seed: int = 0
    size: Annotated[int | None, _AT_LEAST_ONE] = None
    settings: Annotated[tuple[str, ...], Parameter(name="--set")] = ()
    overwrite_metrics_conflicts: bool = False
    assets: bool = False
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What ``export`` was asked to do.

    Attributes:
        output: One file if the name ends in .parquet, else a folder for Hugging Face's datasets.
        format: rollouts: all there is, what is nested as JSON; messages: one conversation, for supervised
            fine-tuning; completion: prompt and completion apart; pairs: of each task the best and the worst
            rollout, for preference training.
        best_of: Only the best of each task's first N rollouts; of equal ones the earliest.
        min_reward: Only rollouts with at least this reward; of pairs, the better one must have it.
        json: Print one JSON document, for programs.
    """

    rollouts: Annotated[tuple[Path, ...], Parameter(parse=False)] = ()
    output: RequiredOutput
    format: Literal["rollouts", "messages", "completion", "pairs"] = "rollouts"
    best_of: Annotated[int | None, _AT_LEAST_ONE] = None
    min_reward: float | None = None
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """What ``view`` was asked to do.

    Attributes:
        port: Where the page is served; 0 lets the system choose.
        no_open: Only print the address.
        export: Write the page and the rollouts into this folder, for any static host; as one file if the
            name ends in .html.
    """

    places: Annotated[tuple[Path, ...], Parameter(parse=False)] = ()
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 0
    no_open: bool = False
    export: Path | None = None
    broker: Broker = BrokerOptions()


def parse_urls(text: str | None) -> tuple[str, ...]:
    """One or several URLs, separated by commas."""
    return tuple(url.strip() for url in (text or "").split(",") if url.strip())
