"""``status`` and ``ls``: what there is, and what is alive."""

from __future__ import annotations

import inspect
import os
import time
from typing import Any

import msgspec
from rich.table import Table

from gym_runtime.cli import formatting, remote, terminal
from gym_runtime.cli.options import BrokerOptions
from gym_runtime.client import Client
from gym_runtime.client.status import RunProgress, Status
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import UsageError
from gym_runtime.messages.run_info import RunInfo

WIDE = 110
MODEL_CHARS = 40
_NUMBERS = (
    *("pid", "done", "failed", "rollouts", "rate", "left"),
    *("waiting", "in flight", "load", "in use"),
)


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
    table = _table(
        "run", "state", "done", "failed", "rollouts", "rate", "left", "model", "environments", "started"
    )
    for run in runs:
        known = progress.get(run.run, RunProgress())
        table.add_row(
            run.run,
            run.state,
            _count(known.done),
            _count(known.failed),
            f"{run.total:,}",
            "-" if known.rate_per_s is None else formatting.pace(known.rate_per_s),
            "-" if known.left_s is None else formatting.span(known.left_s),
            formatting.shorten(run.model, MODEL_CHARS) or "-",
            formatting.listed(run.environments),
            _ago(run.created_s),
        )
    console = terminal.output()
    if runs:
        console.print(table)
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
        "workers": [_in_full(worker) for worker in found.workers],
        "queues": {agent: _in_full(depth) for agent, depth in found.queues.items()},
        "runs": [_run_in_full(run, found.progress) for run in found.runs],
    }


def _show_status(found: Status) -> None:
    console = terminal.output()
    if not found.workers:
        console.print("no workers are alive; 'gym-runtime start --nats URL' starts some")
    else:
        workers = _table("kind", "pools", "worker", "host", "pid", "in use", "load", "up")
        for worker in sorted(found.workers, key=lambda worker: (worker.kind, worker.pools, worker.worker)):
            workers.add_row(
                worker.kind,
                formatting.listed(worker.pools) + "".join(f" = {said}" for said in worker.detail.values()),
                worker.worker,
                worker.host,
                str(worker.pid),
                f"{worker.in_use:,} of {worker.capacity:,}",
                f"{worker.load:.0%}" + (", draining" if worker.draining else ""),
                _since(worker.started_s),
            )
        console.print(workers)
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
    return {**_in_full(run), **_in_full(progress.get(run.run, RunProgress()))}


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        right = column in _NUMBERS
        first = column in ("name", "run", "worker", "pid")
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=first,
            overflow="ellipsis" if first else "fold",
        )
    return table


def _since(started_s: float) -> str:
    return formatting.span(max(0.0, time.time() - started_s)) if started_s else "-"


def _ago(started_s: float) -> str:
    return f"{_since(started_s)} ago" if started_s else "-"
