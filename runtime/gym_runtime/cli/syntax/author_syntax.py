"""What can be typed by authors of environments, and to prepare data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from gym_runtime.cli.options.data_options import BenchOptions, ExportOptions, PrepareOptions, ReverifyOptions
from gym_runtime.cli.options.shared_options import FLAT, AsJson, Everything


def new(
    name: str,
    /,
    *,
    shape: Literal["verify", "session", "episode"] = "session",
    directory: Path = Path(),
) -> None:
    """Write a new environment to start from: NAME.py and NAME.jsonl, which pass the contract.

    Args:
        name: A Python name.
        shape: verify: an answer is judged; session: tools and state; episode: step by step.
        directory: Where to put it.
    """
    from gym_runtime.cli.commands import new_command

    new_command.new(name, shape, directory)


def check(*names: str, everything: Everything = False, json: AsJson = False) -> int:
    """Check an environment against the contract that all of them keep; needs no model and no broker.

    Args:
        names: Environments, or paths of modules.
        everything: Test every environment.
    """
    from gym_runtime.cli.commands import check_command

    return check_command.check(names, everything=everything, as_json=json)


def reverify(name: str | None = None, /, *, options: Annotated[ReverifyOptions, FLAT]) -> int:
    """Compute the rewards of stored rollouts again, without a model, and compare them with the recorded ones.

    Recorded tool calls are repeated. Rows that cannot be judged are put into a file beside the output, with
    the reason, and make the exit status 1.

    Args:
        name: The environment; by default each row's own.
    """
    from gym_runtime.cli.commands import reverify_command

    return reverify_command.reverify(replace(options, name=name))


def bench(*names: str, options: Annotated[BenchOptions, FLAT] = BenchOptions()) -> int:
    """Measure what environments cost, on their example rows: verifying, tools, sessions. Needs no model.

    With "system" instead of names it measures this installation: rollouts of two model calls and a tool call,
    with an engine that answers at once, against a bare loop of the same calls.

    Args:
        names: Environments, or paths of modules; or "system".
    """
    from gym_runtime.cli.commands import bench_command

    if names == ("system",):
        return bench_command.bench_system(options)
    return bench_command.bench(replace(options, names=names))


def prepare(*names: str, options: Annotated[PrepareOptions, FLAT] = PrepareOptions()) -> int:
    """Get rows, check every one, blend them, and write them with their metrics.

    Writes DIR/SPLIT.jsonl, DIR/SPLIT_metrics.json and DIR/sources.json, which pins what was downloaded; and
    all rows of each source with their metrics: as DIR/NAME_SPLIT_prepare.jsonl and
    DIR/NAME_SPLIT_metrics.json, or without -o beside an --input x.jsonl as x_prepare.jsonl and
    x_metrics.json.

    Args:
        names: Environments, blended if several; NAME:DATASET where one has several data sets.
    """
    from gym_runtime.cli.commands import prepare_command

    if options.assets:
        return prepare_command.fetch_assets(names, as_json=options.json)
    return prepare_command.prepare(replace(options, names=names))


def export(*rollouts: Path, options: Annotated[ExportOptions, FLAT]) -> int:
    """Write rollouts with a verdict as Parquet, with the columns that trainers want.

    For NeMo Gym's files too. Rows that have no such form are counted and said.

    Args:
        rollouts: Result files, such as results/mcqa.jsonl.
    """
    from gym_runtime.cli.commands import export_command

    return export_command.export(replace(options, rollouts=rollouts))
