"""``bench``: what environments, or this installation, cost, as a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from gym_runtime.cli import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    AsJson,
    Everything,
    RowFields,
    formatting,
    parse_row_fields,
    run_async,
    terminal,
)
from gym_runtime.environment import (
    LoadedEnvironment,
    catalogue,
    require_known,
    requirements,
    with_settings,
)
from gym_runtime.errors import GymError, UsageError
from rich.table import Table

from gym_testing.checks import throughput
from gym_testing.checks.throughput import Throughput

if TYPE_CHECKING:
    from gym_testing.bench.system_bench import SystemCost

SHOWN_TOOLS = 4


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one environment; ``problem`` is why nothing was."""

    environment: str
    throughput: Throughput | None = None
    problem: str = ""


def bench(
    *names: str,
    everything: Everything = False,
    seconds: Annotated[float, POSITIVE] = 1.0,
    row_fields: RowFields = (),
    rollouts: Annotated[int, AT_LEAST_ONE] = 2000,
    in_flight: Annotated[int, AT_LEAST_ONE] = 256,
    engine_s: Annotated[float, NOT_NEGATIVE] = 0.0,
    workers: Annotated[int, AT_LEAST_ONE] = 1,
    hosted: bool = False,
    json: AsJson = False,
) -> int:
    """Measure what environments cost, on their example rows: verifying, tools, sessions. Needs no model.

    With "system" instead of names it measures this installation: rollouts of two model calls and a tool call,
    with an engine that answers at once, against a bare loop of the same calls.

    Args:
        names: Environments by name, module path or guest scheme (openenv:URL), with spaces or commas between.
            Or "system".
        everything: Measure every environment that can run here.
        seconds: How long to measure each environment.
        row_fields: NAME=VALUE, a field for the rows that leave it out; JSON or text, repeatable.
        rollouts: How many rollouts "system" makes in each of its runs.
        in_flight: How many of them "system" has in flight.
        engine_s: How long the engine of "system" takes for an answer, in seconds.
        workers: How many processes of each kind "system" starts.
        hosted: Let the agent workers of "system" host its environment and its model.
    """
    if names == ("system",):
        cost = _bench_system(rollouts, in_flight, engine_s, workers, hosted=hosted)
        terminal.print_json(cost) if json else _show_system(cost)
        return 0
    settings = parse_row_fields(row_fields)
    if bool(names) == everything:
        raise UsageError("say which: gym-runtime bench NAME..., or --all (and not both)")
    names = catalogue.several(names)
    for name in names:
        requirements.require(catalogue.environment(name))
    chosen = names or catalogue.names("environments")
    if settings:
        require_known(settings, _loaded(chosen))
    found: list[Measured] = []

    async def measure() -> None:
        with terminal.errors().status("measuring") as status:
            for name in chosen:
                status.update(f"measuring {name}")
                found.append(await _measure(name, seconds, settings))

    run_async(measure)
    terminal.print_json(found) if json else _show(found)
    return 0 if everything or not any(one.problem for one in found) else 1


def _bench_system(
    rollouts: int, in_flight: int, engine_s: float, workers: int, *, hosted: bool
) -> SystemCost:
    from gym_testing.bench import system_bench

    async def measure() -> SystemCost:
        with terminal.errors().status("measuring"):
            return await system_bench.measure(
                rollouts=rollouts, in_flight=in_flight, engine_s=engine_s, workers=workers, hosted=hosted
            )

    return run_async(measure)


def _show_system(found: SystemCost) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"{found.in_flight:,} in flight, engine {found.engine_s * 1e3:g} ms", no_wrap=True)
    for title in ("rollouts/s", "CPU µs per rollout", "without journal"):
        table.add_column(title, justify="right")
    table.add_row("bare loop", f"{found.bare_per_s:,.0f}", f"{found.bare_us:,.0f}", "")
    table.add_row("a loop with openai", "", f"{found.openai_us:,.0f}", "")
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
            f"* judged in their own processes, {os.cpu_count()} at once; a verdict includes its session",
            style="dim",
        )
    if any(one.throughput is not None and one.throughput.counted_by == "samples" for one in found):
        console.print(
            "CPU of sandboxes is that of samples: processes that live for less than 5 ms are missed, because "
            "no control group can be made here",
            style="dim",
        )
    elif table.row_count:
        console.print("CPU is that of all processes, counted by a control group", style="dim")
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
