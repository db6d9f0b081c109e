"""``bench``: what environments, or this installation, cost, as a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from gym_testing.checks import throughput
from gym_testing.checks.throughput import Throughput
from rich.table import Table

from gym_runtime.cli import formatting, terminal
from gym_runtime.cli.model_choice import parse_row_fields
from gym_runtime.cli.options.data_options import BenchOptions
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.settings import require_known, with_settings
from gym_runtime.errors import GymError, UsageError

if TYPE_CHECKING:
    from gym_testing.bench.system_bench import SystemCost

SHOWN_TOOLS = 4


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one environment; ``problem`` is why nothing was."""

    environment: str
    throughput: Throughput | None = None
    problem: str = ""


def bench(options: BenchOptions) -> int:
    """Measure environments; 0 if each of those named could be.

    Raises:
        UsageError: nothing was named, there is no such environment or setting, or a module cannot be
            imported.
    """
    names, everything, seconds = options.names, options.everything, options.seconds
    settings = parse_row_fields(options.row_fields)
    if bool(names) == everything:
        raise UsageError("say which: gym-runtime bench NAME..., or --all (and not both)")
    for name in names:
        environment = catalogue.environment(name)
        requirements.require(environment)
    if settings:
        require_known(settings, _loaded(names or catalogue.names("environments")))
    found: list[Measured] = []

    async def measure() -> None:
        console = terminal.errors()
        with console.status("measuring") as status:
            for name in names or catalogue.names("environments"):
                status.update(f"measuring {name}")
                found.append(await _measure(name, seconds, settings))

    anyio.run(measure, backend_options={"use_uvloop": sys.platform != "win32"})
    if options.json:
        terminal.print_json(found)
    else:
        _show(found)
    return 0 if everything or not any(one.problem for one in found) else 1


def bench_system(options: BenchOptions) -> int:
    """Measure this installation.

    Raises:
        UsageError: the benchmark's environment is not installed, or this is not Linux.
    """
    from gym_testing.bench import system_bench

    async def measure() -> system_bench.SystemCost:
        with terminal.errors().status("measuring"):
            return await system_bench.measure(
                rollouts=options.rollouts,
                in_flight=options.in_flight,
                engine_s=options.engine_s,
                workers=options.workers,
            )

    found = anyio.run(measure, backend_options={"use_uvloop": True})
    if options.json:
        terminal.print_json(found)
    else:
        _show_system(found)
    return 0


def _show_system(found: SystemCost) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"{found.in_flight:,} in flight, engine {found.engine_s * 1e3:g} ms", no_wrap=True)
    for title in ("rollouts/s", "CPU µs per rollout", "without journal"):
        table.add_column(title, justify="right")
    table.add_row("bare loop", f"{found.bare_per_s:,.0f}", f"{found.bare_us:,.0f}", "")
    whole = (found.per_s, found.cpu_us, found.without_journal_us)
    table.add_row("gym-runtime", *(f"{value:,.0f}" for value in whole))
    for name, part in found.parts.items():
        table.add_row(f"  {name}", "", f"{part.cpu_us:,.0f}", f"{part.without_journal_us:,.0f}")
    console = terminal.output()
    console.print(table)
    console.print(
        f"{found.ratio:.1f} times the bare loop's CPU; the journal is {found.journal_share:.0%} of it. At "
        f"most {found.most_at_engine:,} calls were at the engine. The limit is {found.limit}. "
        f"{found.python}.",
        soft_wrap=True,
    )


def _loaded(names: Iterable[str]) -> Iterator[LoadedEnvironment]:
    for name in names:
        with suppress(UsageError):  # it is reported where it is measured
            yield catalogue.environment(name)


async def _measure(name: str, seconds: float, settings: dict[str, Any]) -> Measured:
    try:
        environment = with_settings(catalogue.environment(name), settings)
        return Measured(
            environment=environment.name, throughput=await throughput.measure(environment, seconds)
        )
    except GymError as error:
        return Measured(environment=name, problem=error.message)


def _show(found: list[Measured]) -> None:
    console = terminal.output()
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("environment", no_wrap=True)
    for title in ("verdicts/s", "CPU µs", "silent, CPU µs", "session, CPU µs"):
        table.add_column(title, justify="right")
    table.add_column("tools, CPU µs")
    for one in found:
        if one.throughput is not None:
            table.add_row(*_cells(one.throughput))
    if table.row_count:
        console.print(table)
    if any(one.throughput is not None and one.throughput.isolated for one in found):
        console.print(
            f"* judged in processes of their own, {os.cpu_count()} at once; a verdict includes its session",
            style="dim",
        )
    for one in found:
        if one.problem:
            console.print(f"- {one.environment}: {one.problem}", soft_wrap=True, style="dim")


def _cells(one: Throughput) -> list[str]:
    tools = [f"{name} {cost.cpu_us:,.0f}" for name, cost in one.tools.items()]
    return [
        one.environment + ("*" if one.isolated else ""),
        f"{one.gold.per_s:,.0f}",
        f"{one.gold.cpu_us:,.0f}",
        f"{one.silence.cpu_us:,.0f}",
        f"{one.session.cpu_us:,.0f}",
        formatting.listed(tools, SHOWN_TOOLS),
    ]
