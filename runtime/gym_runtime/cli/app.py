"""The application ``gym-runtime``: which commands there are, and how fields become flags.

A command is the function of its name in the module of its name. That module is imported when the command runs
or its own help is shown; the list of all commands is shown from the tables, without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, Group, Parameter

from gym_runtime.plugins import plugins
from gym_runtime.version import VERSION

COMMANDS = {
    "Make rollouts": {
        "run": "Run rollouts in one or several environments: everything in one command.",
        "start": "Start workers that stay, and a broker unless --nats names one; prints what is ready.",
        "publish": "Put a file's rollouts on the queue of a running system; prints the run's id.",
        "collect": "Write a published run's rollouts to a file, as they come; from any machine.",
        "fork": "Make new rollouts that begin with the first turns of a stored one.",
        "merge": "Put the parts of a run, in several result files, together: one row per rollout, with "
        "new metrics.",
        "cancel": "Stop a run, one of its tasks, or one rollout.",
        "pause": "Pause a run: nothing of it starts, and its rollouts stop before their next turn.",
        "resume": "Let a run go on that 'gym-runtime pause' has paused.",
        "retry-failed": "Run the failed rollouts of a published run again, before they are collected.",
        "set": "Change a run while it goes on, such as its concurrency.",
        "drain": "Ask workers to leave: they take no new work, and finish what they have or give it back.",
        "weights": "Pause a serving model, change its weights, and resume: rollouts wait meanwhile, and "
        "no rollout is lost.",
    },
}
"""The engine's commands by the part of the help that shows them, with the first sentence of their docstrings.

A guest has such a table in the package that its entry point of the group ``gym_runtime.commands`` names.
"""
PARTS = ("Make rollouts", "Look around", "Write environments", "Prepare data")
"""Of the help, as it shows them."""

RENAMED = {
    "timeout_s": "timeout",
    "call_timeout_s": "call-timeout",
    "drain_s": "drain",
    "wait_s": "wait",
    "linger_s": "linger",
}


def flag(name: str) -> str:
    """The name of a field or function as its flag or command."""
    return RENAMED.get(name, name.replace("_", "-"))


def application(arguments: Sequence[str] | None = None) -> App:
    """The application for one command line; without one, for its documentation.

    The engine's commands run without asking guests for theirs. A list of the commands imports none of them:
    its texts are those of the tables. A command's own help is its docstring, which they would hide.
    """
    app = App(
        name="gym-runtime",
        help="Make verified rollouts of language models, on this machine or on many.",
        version=f"gym-runtime {VERSION}",
        default_parameter=Parameter(negative=(), name_transform=flag),
        suppress_keyboard_interrupt=False,  # an interrupted run says how it is resumed
        name_transform=flag,
    )
    app.register_install_completion_command()
    groups = {part: Group(part, sort_key=place) for place, part in enumerate(PARTS)}
    tables = {"gym_runtime.cli": COMMANDS}
    if not arguments or not any(arguments[0] in commands for commands in COMMANDS.values()):
        tables |= {one.value: one.load().COMMANDS for one in plugins("commands").values()}
    listing = arguments is not None and (not arguments or arguments[0] in app.help_flags)
    for package, parts in tables.items():
        for part, commands in parts.items():
            for name, text in commands.items():
                function = name.replace("-", "_")
                path = f"{package}.{function}:{function}"
                app.command(path, name=name, group=groups[part], help=text if listing else None)
    return app
