"""What can be typed: every command with its options, one module per subject.

Bodies only hand over, and import when they run.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from gym_runtime.cli import flags
from gym_runtime.cli.commands import data, environments, runs, systems, viewing
from gym_runtime.cli.signature import spread

COMMANDS: dict[str, dict[str, Callable[..., int | None]]] = {
    "Make rollouts": {
        "run": runs.run,
        "start": systems.start,
        "publish": runs.publish,
        "collect": runs.collect,
        "cancel": runs.cancel,
        "weights": systems.weights,
        "gateway": systems.gateway,
    },
    "Look around": {
        "view": viewing.view,
        "show": viewing.show,
        "compare": viewing.compare,
        "status": systems.status,
        "ls": systems.ls,
    },
    "Write environments": {
        "new": environments.new,
        "test": environments.check,
        "reverify": environments.reverify,
        "bench": environments.bench,
    },
    "Prepare data": {"prepare": data.prepare},
}
"""As the help shows them."""

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def gym_runtime(version: flags.Version = False) -> None:
    """Make verified rollouts of language models, on this machine or on many."""


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(spread(_command))
