"""The options of commands on rows and on result files, and of those for authors of environments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from gym_runtime.cli.options.shared_options import (
    AT_LEAST_ONE,
    Broker,
    BrokerOptions,
    Everything,
    FailuresAsZero,
    Output,
    RequiredOutput,
    RoleOptions,
    Roles,
    RowFields,
)


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
    concurrency: Annotated[int, AT_LEAST_ONE] = 8
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
    failures_as_zero: FailuresAsZero = False


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
        split: train, validation, benchmark or example; repeatable. By default train, of benchmarks benchmark.
        output: The folder to fill, and the only one that is written to; by default data/NAME.
        source: huggingface, file or generate; by default file if there is an --input, else what the
            environment offers. The hub takes HF_TOKEN and HF_ENDPOINT.
        input_file: The rows, JSONL; with several NAMEs, NAME=FILE.
        prompt: A YAML or TOML file that makes the input of the rows' fields; by default a benchmark's own.
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
    size: Annotated[int | None, AT_LEAST_ONE] = None
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
    best_of: Annotated[int | None, AT_LEAST_ONE] = None
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
    failures_as_zero: FailuresAsZero = False
    broker: Broker = BrokerOptions()
