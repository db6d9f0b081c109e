"""``ls``: which environments, agents, models, tool packs and runs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_runtime.cli import system_tables, terminal
from gym_runtime.cli.descriptions import (
    EnvironmentEntry,
    ModuleEntry,
    PackEntry,
    describe_environment,
    describe_module,
    describe_pack,
)
from gym_runtime.cli.options.shared_options import BrokerOptions
from gym_runtime.environment import catalogue

if TYPE_CHECKING:
    from gym_runtime.client import Client
    from gym_runtime.client.status import RunProgress
    from gym_runtime.messages.stored_records import RunInfo

WIDE = 110


def ls(what: str, broker: BrokerOptions, *, as_json: bool, markdown: bool = False) -> None:
    """Print a listing. Only that of the runs asks a running system."""
    if what == "runs":
        # Heavy, and the other listings need no system.
        from gym_runtime.cli import remote
        from gym_runtime.cli.state_json import full_run

        runs, progress = remote.ask(broker, _runs)
        if as_json:
            terminal.print_json([full_run(run, progress) for run in runs])
        elif runs:
            terminal.output().print(system_tables.drawn_runs(runs, progress))
        else:
            terminal.output().print("the system knows of no runs")
    elif what == "environments":
        environments = [describe_environment(name) for name in catalogue.names("environments")]
        if as_json:
            terminal.print_json(environments)
        elif markdown:
            _print_markdown(environments)
        else:
            _show_environments(environments)
    elif what == "tools":
        packs = [describe_pack(name) for name in catalogue.names("tools")]
        if as_json:
            terminal.print_json(packs)
        else:
            _show_packs(packs)
    else:
        kind: catalogue.Kind = "agents" if what == "agents" else "models"
        modules = [describe_module(kind, name) for name in catalogue.names(kind)]
        if as_json:
            terminal.print_json(modules)
        else:
            _show_modules(modules)


def _show_environments(entries: list[EnvironmentEntry]) -> None:
    console = terminal.output()
    columns = ["name", "domain", "shape", "licence", "needs", "description"]
    if console.width < WIDE:
        columns = ["name", "shape", "description"]
    table = system_tables.drawn(columns, ())
    for entry in entries:
        cells = {
            "name": entry.name,
            "domain": entry.domain,
            "shape": entry.shape,
            "licence": entry.data_license,
            "needs": entry.extra if entry.runnable else f"{entry.extra} (missing)".strip(),
            "description": entry.description if entry.runnable else f"needs: {entry.needs}",
        }
        table.add_row(*(cells[column] for column in columns), style="" if entry.runnable else "dim")
    console.print(table)


def _print_markdown(entries: list[EnvironmentEntry]) -> None:
    """The README's table; it does not depend on what is installed."""
    print("| name | domain | shape | extra | licence of the data | what it is |")
    print("|---|---|---|---|---|---|")
    for entry in entries:
        cells = (
            f"`{entry.name}`",
            entry.domain,
            entry.shape,
            entry.extra,
            entry.data_license,
            entry.description,
        )
        print(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")


def _show_modules(entries: list[ModuleEntry]) -> None:
    keys = any(entry.key_variable for entry in entries)
    table = system_tables.drawn(("name", *(["key"] if keys else []), "description"), ())
    for entry in entries:
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        key = f"{entry.key_variable}{' (set)' if entry.key_set else ''}"
        table.add_row(entry.name, *([key] if keys else []), about, style="" if entry.runnable else "dim")
    terminal.output().print(table)


def _show_packs(entries: list[PackEntry]) -> None:
    table = system_tables.drawn(("name", "tools", "licence", "description"), ())
    for entry in entries:
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        tools = "\n".join(tool["name"] for tool in entry.tools)
        style = "" if entry.runnable else "dim"
        table.add_row(entry.name, tools, entry.data_license, about, style=style)
    terminal.output().print(table)


async def _runs(gym: Client) -> tuple[list[RunInfo], dict[str, RunProgress]]:
    runs = await gym.runs()
    return runs, await gym.progress(runs)
