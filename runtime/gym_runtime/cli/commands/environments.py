"""Environments: begin one, check it, measure it, and judge stored rollouts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gym_runtime.cli import flags

Shape = Literal["verify", "session", "episode"]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", show_default=False, help="Environments, or paths of modules."),
]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A Python name.")],
    shape: Annotated[
        Shape,
        typer.Option(
            metavar="SHAPE",
            help="verify: an answer is judged; session: tools and state; episode: step by step.",
        ),
    ] = "session",
    directory: Annotated[Path, typer.Option(metavar="DIR", help="Where to put it.")] = Path(),
) -> None:
    """Write a new environment to start from: NAME.py and NAME.jsonl, which pass the contract."""
    from gym_runtime.cli import author

    author.new(name, shape, directory)


def check(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Test every environment.")] = False,
    json: flags.AsJson = False,
) -> int:
    """Check an environment against the contract that all of them keep; needs no model and no broker."""
    from gym_runtime.cli import author

    return author.test(tuple(names or ()), everything=everything, as_json=json)


def reverify(
    rollouts: Annotated[
        Path,
        typer.Option("--rollouts", metavar="FILE", show_default=False, help="Stored rows, or NeMo Gym's."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="The rows, judged anew."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="The environment; else each row's own."),
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The run's *_materialized_inputs.jsonl, or its dataset, for fields that the rows lack; "
            "repeatable.",
        ),
    ] = None,
    settings: flags.Settings = None,
    concurrency: Annotated[int, typer.Option(metavar="C", min=1, help="Rows judged at once.")] = 8,
    strict: Annotated[
        bool, typer.Option("--strict", metavar="", help="Another reward than before makes the exit status 1.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on where an interrupted one stopped.")
    ] = False,
    json: flags.AsJson = False,
) -> int:
    """Compute the rewards of stored rollouts anew, without a model, and compare them with the recorded ones.

    Recorded tool calls are repeated. Rows that cannot be judged are put into a file beside the output, with
    the reason, and make the exit status 1.
    """
    from gym_runtime.cli import reverify as rejudging
    from gym_runtime.cli.options import parse_settings

    return rejudging.reverify(
        rejudging.ReverifyOptions(
            name=name,
            rollouts=rollouts,
            output=output,
            inputs=tuple(inputs or ()),
            settings=parse_settings(settings or ()),
            concurrency=concurrency,
            strict=strict,
            resume=resume,
            json=json,
        )
    )


def bench(
    names: Names = None,
    everything: Annotated[
        bool, typer.Option("--all", metavar="", help="Measure every environment that can run here.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.01, help="How long to measure each environment.")
    ] = 1.0,
    settings: flags.Settings = None,
    json: flags.AsJson = False,
) -> int:
    """Measure what environments cost, on their example rows: verifying, tools, sessions. Needs no model."""
    from gym_runtime.cli import bench as benches
    from gym_runtime.cli.options import parse_settings

    return benches.bench(
        tuple(names or ()),
        everything=everything,
        seconds=seconds,
        settings=parse_settings(settings or ()),
        as_json=json,
    )
