"""``status`` and ``ls``: what there is, and what is alive."""

from __future__ import annotations

import inspect
import os
import time
from typing import Any

import msgspec
from rich.table import Table

from gym_runtime.cli import remote, tables, terminal
from gym_runtime.cli.options import BrokerOptions
from gym_runtime.client import Client
from gym_runtime.client.status import RunProgress, Status
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import UsageError
from gym_runtime.messages.run_info import RunInfo
from gym_runtime.viewer.limit import limit
from gym_runtime.viewer.live import Reading, run_view, view

WIDE = 110
RATES = ("per s", "p50", "p99", "core")
"""Columns that need two readings: ``top --once`` has them."""


class EnvironmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An environment in a listing. ``needs`` is what must be done before it runs; empty if nothing."""

    name: str
    domain: str = ""
    shape: str = ""
    agent: str = ""
    runnable: bool = True
    needs: str = ""
    extra: str = ""
    data_license: str = ""
    description: str = ""
    source: str = ""


class ModuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent or a model provider in a listing. ``key_variable`` is empty where no key is needed."""

    name: str
    runnable: bool = True
    needs: str = ""
    description: str = ""
    key_variable: str = ""
    key_set: bool = False


# -- ls -----------------------------------------------------------------------------------------------


def ls(what: str, broker: BrokerOptions, *, as_json: bool, markdown: bool = False) -> None:
    """Print a listing. Only that of the runs asks a running system."""
    if what == "runs":
        runs, progress = remote.ask(broker, _runs)
        if as_json:
            terminal.print_json([_run_in_full(run, progress) for run in runs])
        else:
            _show_runs(runs, progress)
    elif what == "environments":
        environments = [describe_environment(name) for name in catalogue.names("environments")]
        if as_json:
            terminal.print_json(environments)
        elif markdown:
            _print_markdown(environments)
        else:
            _show_environments(environments)
    else:
        kind: catalogue.Kind = "agents" if what == "agents" else "models"
        modules = [describe_module(kind, name) for name in catalogue.names(kind)]
        if as_json:
            terminal.print_json(modules)
        else:
            _show_modules(modules)


def describe_environment(name: str) -> EnvironmentEntry:
    """An environment's entry, also if it cannot be imported."""
    try:
        environment = catalogue.environment(name)
    except UsageError as error:
        return EnvironmentEntry(name=name, runnable=False, needs=_remedy(error))
    needs = ""
    try:
        requirements.require(environment)
    except UsageError as error:
        needs = _remedy(error)
    definition = environment.definition
    return EnvironmentEntry(
        name=name,
        domain=definition.domain,
        shape=definition.shape,
        agent=definition.agent,
        runnable=not needs,
        needs=needs,
        extra=definition.extra,
        data_license=definition.data_license
        or ", ".join(dict.fromkeys(d.license for d in definition.datasets)),
        description=definition.description,
        source=str(environment.source),
    )


def describe_module(kind: catalogue.Kind, name: str) -> ModuleEntry:
    """An agent's or a model provider's entry, also if it cannot be imported."""
    try:
        module = catalogue.load(kind, name)
    except UsageError as error:
        return ModuleEntry(name=name, runnable=False, needs=_remedy(error))
    key_variable = getattr(module, "key_variable", None)
    about = getattr(module, "about", None)
    variable = key_variable(name) if key_variable else ""
    return ModuleEntry(
        name=name,
        description=about(name) if about else (inspect.getdoc(module) or "").partition("\n")[0],
        key_variable=variable,
        key_set=bool(os.environ.get(variable)),
    )


def _remedy(error: UsageError) -> str:
    """The command that installs what is missing, or else all that is known."""
    _, found, command = error.message.partition(" not installed: ")
    return command if found else error.message


def _show_environments(entries: list[EnvironmentEntry]) -> None:
    console = terminal.output()
    columns = ["name", "domain", "shape", "licence", "needs", "description"]
    if console.width < WIDE:
        columns = ["name", "shape", "description"]
    table = _table(*columns)
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
    table = _table("name", *(["key"] if keys else []), "description")
    for entry in entries:
        about = entry.description if entry.runnable else f"needs: {entry.needs}"
        key = f"{entry.key_variable}{' (set)' if entry.key_set else ''}"
        table.add_row(entry.name, *([key] if keys else []), about, style="" if entry.runnable else "dim")
    terminal.output().print(table)


async def _runs(gym: Client) -> tuple[list[RunInfo], dict[str, RunProgress]]:
    runs = await gym.runs()
    return runs, await gym.progress(runs)


def _show_runs(runs: list[RunInfo], progress: dict[str, RunProgress]) -> None:
    console = terminal.output()
    if runs:
        shown = [run_view(run, progress.get(run.run)) for run in runs]
        console.print(tables.drawn(tables.RUNS, tables.runs(shown)))
    else:
        console.print("the system knows of no runs")


# -- status -------------------------------------------------------------------------------------------


def status(broker: BrokerOptions, *, as_json: bool) -> None:
    """Print what is alive and what is waiting."""
    found = remote.ask(broker, lambda gym: gym.status())
    if as_json:
        terminal.print_json(full_status(found))
    else:
        _show_status(found)


def full_status(found: Status) -> dict[str, Any]:
    """A system's state as ``status --json`` prints it, with every field."""
    return {
        "limit": limit(view(Reading(time.time(), found))),
        "workers": [_in_full(worker) for worker in found.workers],
        "queues": {agent: _in_full(depth) for agent, depth in found.queues.items()},
        "runs": [_run_in_full(run, found.progress) for run in found.runs],
    }


def _show_status(found: Status) -> None:
    console = terminal.output()
    if not found.workers:
        console.print("no workers are alive; 'gym-runtime start --nats URL' starts some")
    else:
        now = view(Reading(time.time(), found))
        console.print(limit(now), soft_wrap=True)
        console.print()
        console.print(tables.drawn(tables.WORKERS, tables.workers(now.workers), without=RATES))
    console.print()
    queues = _table("queue", "waiting", "in flight")
    for agent, depth in found.queues.items():
        queues.add_row(agent, f"{depth.waiting:,}", f"{depth.in_flight:,}")
    if found.queues:
        console.print(queues)
        console.print()
    active = [run for run in found.runs if run.state == "active"]
    if active:
        _show_runs(active, found.progress)
        agents = sorted({name for run in active for name in run.agents})
        environments = sorted({name for run in active for name in run.environments})
        for line in remote.unserved(found.workers, agents=agents, environments=environments):
            console.print(line, soft_wrap=True)
    else:
        console.print("no run is active")


# -- what they share ----------------------------------------------------------------------------------


def _in_full(struct: msgspec.Struct) -> dict[str, Any]:
    """Every field, also those with their default values, which the wire leaves out."""
    return msgspec.structs.asdict(struct)


def _run_in_full(run: RunInfo, progress: dict[str, RunProgress]) -> dict[str, Any]:
    known = progress.get(run.run, RunProgress())
    return {**_in_full(run), **_in_full(known), "mean_reward": run_view(run, known).mean_reward}


def _table(*columns: str) -> Table:
    return tables.drawn(columns, ())
