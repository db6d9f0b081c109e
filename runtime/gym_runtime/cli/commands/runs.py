"""Runs: make one, publish one, collect one, cancel one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gym_runtime.cli import flags
from gym_runtime.cli.interruption import resumable

RunId = Annotated[str, typer.Argument(metavar="RUN", show_default=False, help="As publish printed it.")]


@resumable
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            show_default="the environments' example rows",
            help="Dataset rows, JSONL, or - for standard input. With several environments, rows say theirs "
            "in agent_ref.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default="results/NAME.jsonl",
            help="The rollouts; further files are put beside it.",
        ),
    ] = None,
    *,
    model: flags.Model,
    making: flags.Making,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on with an interrupted run.")
    ] = False,
    json: flags.AsJson = False,
    concurrency: flags.Concurrency = 1024,
    workers: flags.Workers = 1,
    broker: flags.Broker,
    state_dir: flags.StateDir = "",
    config: flags.BrokerAndModel = None,
) -> int:
    """Make rollouts in one or several environments: everything in one command.

    Starts a broker and workers, publishes the rows, collects the verified rollouts, and reports.
    """
    from gym_runtime.cli import run as runs
    from gym_runtime.cli.options import RunOptions

    options = RunOptions(
        names=tuple(names or ()),
        input=input_file,
        output=output,
        resume=resume,
        json=json,
        concurrency=concurrency,
        workers=workers,
        nats=broker.urls,
        prefix=broker.prefix,
        state_dir=state_dir,
        **model.said(),
        **making.said(),
    )
    return runs.run(options.with_file(config) if config else options)


def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Dataset rows, JSONL.", show_default=False)],
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment of rows that do not say theirs in agent_ref."),
    ] = None,
    *,
    making: flags.Making,
    broker: flags.Broker,
) -> None:
    """Put a file's rollouts on the queue of a running system; prints the run's id."""
    from gym_runtime.cli import publish as publishing
    from gym_runtime.cli.options import RunOptions

    options = RunOptions(
        names=(environment,) if environment else (),
        input=file,
        nats=broker.urls,
        prefix=broker.prefix,
        **making.said(),
    )
    print(publishing.publish(options))


def collect(
    run: RunId,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The rollouts.", show_default=False),
    ],
    json: flags.AsJson = False,
    *,
    broker: flags.Broker,
) -> int:
    """Write a published run's rollouts to a file, as they come; from any machine."""
    from gym_runtime.cli import collect as collecting
    from gym_runtime.cli.options import CollectOptions

    return collecting.collect(
        CollectOptions(run=run, output=output, json=json, nats=broker.urls, prefix=broker.prefix)
    )


def cancel(
    run: RunId,
    task: Annotated[
        int | None, typer.Option(metavar="I", min=0, help="Only the rollouts of this task.")
    ] = None,
    rollout: Annotated[
        int | None, typer.Option(metavar="J", min=0, help="Only this rollout of the task.")
    ] = None,
    *,
    broker: flags.Broker,
) -> None:
    """Stop a run, one of its tasks, or one rollout."""
    from gym_runtime.cli import cancel as cancelling

    cancelling.cancel(run, task, rollout, nats=broker.urls, prefix=broker.prefix)
