"""The application ``gym-runtime``: every command, by the parts of the help, and how fields become flags."""

from __future__ import annotations

from collections.abc import Callable

from cyclopts import App, Group, Parameter

from gym_runtime.cli.syntax.author_syntax import bench, check, export, new, prepare, reverify
from gym_runtime.cli.syntax.rollout_syntax import (
    broker,
    cancel,
    collect,
    deploy,
    drain,
    gateway,
    gym_server,
    merge,
    publish,
    run,
    start,
    weights,
)
from gym_runtime.cli.syntax.viewing_syntax import compare, ls, metrics, show, status, top, view
from gym_runtime.version import VERSION

COMMANDS: dict[str, list[Callable[..., int | None]]] = {
    "Make rollouts": [
        *(run, start, broker, deploy, publish, collect, merge, cancel, drain, weights),
        *(gateway, gym_server),
    ],
    "Look around": [view, show, compare, top, status, metrics, ls],
    "Write environments": [new, check, reverify, bench],
    "Prepare data": [prepare, export],
}
"""As the help shows them."""

RENAMED = {
    "return_tokens": "return-token-ids",
    "timeout_s": "timeout",
    "call_timeout_s": "call-timeout",
    "drain_s": "drain",
    "wait_s": "wait",
    "linger_s": "linger",
    "check": "test",
}


def flag(name: str) -> str:
    """The name of a field or function as its flag or command."""
    return RENAMED.get(name, name.replace("_", "-"))


app = App(
    name="gym-runtime",
    help="Make verified rollouts of language models, on this machine or on many.",
    version=f"gym-runtime {VERSION}",
    default_parameter=Parameter(negative=(), name_transform=flag),
    suppress_keyboard_interrupt=False,  # an interrupted run says how it is resumed
    name_transform=flag,
)
app.register_install_completion_command()
for _place, (_panel, _commands) in enumerate(COMMANDS.items()):
    _group = Group(_panel, sort_key=_place)
    for _command in _commands:
        app.command(_command, group=_group)
