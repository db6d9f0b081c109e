"""Look at rollouts: on a page, one in the terminal, two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gym_runtime.cli import flags


def view(
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|FOLDER", show_default=False, help="Rollouts; else those in results."),
    ] = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, show_default="any that is free")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", metavar="", help="Only print the address.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the page and the rollouts there, for any static host; as one file, if the name ends "
            "in .html.",
        ),
    ] = None,
    *,
    broker: flags.Broker,
) -> int:
    """Show rollouts on a page: why this reward, which tasks carry signal, what failed, two runs compared.

    For NeMo Gym's files too. The page is served to this machine only; the address carries a token. With a
    broker it shows the running system as well.
    """
    from gym_runtime.cli import view as viewing

    return viewing.view(
        viewing.ViewOptions(
            places=tuple(places or ()),
            port=port,
            open=not no_open,
            export=export,
            nats=broker.urls,
            prefix=broker.prefix,
        )
    )


def show(
    rollout: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE:N",
            show_default=False,
            help="A rollout's id; or a file with a line's number, or with TASK.ROLLOUT.",
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--in", metavar="FOLDER", help="Where rollouts with an id are looked for.")
    ] = Path("results"),
    json: flags.AsJson = False,
) -> int:
    """Show one rollout in the terminal: its verdict, then its conversation."""
    from gym_runtime.cli import show as showing

    return showing.show(showing.ShowOptions(rollout=rollout, folder=folder, json=json))


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", show_default=False, help="Rollouts of the first run.")],
    b: Annotated[Path, typer.Argument(metavar="B", show_default=False, help="Rollouts of the second.")],
    json: flags.AsJson = False,
) -> int:
    """Compare two runs task by task: which is better, by how much, and which tasks flipped."""
    from gym_runtime.cli import compare as comparing

    return comparing.compare(comparing.CompareOptions(a=a, b=b, json=json))
