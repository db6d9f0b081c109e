"""``top``: a running system on the terminal, or once, as text or JSON."""

from __future__ import annotations

import sys

import anyio
from gym_runtime import Client, clock, connect
from gym_runtime.cli import BROKER, AsJson, Broker, terminal
from gym_runtime.errors import UsageError

from gym_view import system_tables
from gym_view.limit import limit
from gym_view.live import GOING_ON, Reading, View, view

BETWEEN_S = 1.0


def top(*, once: bool = False, json: AsJson = False, broker: Broker = BROKER) -> int:
    """Watch a running system: workers, runs, engines, failures, and what limits the rate.

    Keys cancel a run and pause or resume a model's weights; both ask first.

    Args:
        once: Print it once, with rates over a second; needs no terminal.
    """
    urls = broker.required()
    if json and not once:
        raise UsageError("--json is for --once")
    if not once:
        _require_screen()

    async def main() -> None:
        async with connect(urls, prefix=broker.prefix) as client:
            if once:
                _print(await _look_twice(client), as_json=json)
            else:
                from gym_view.screen import Top

                await Top(client, f"gym-runtime top   {urls[0].rpartition('@')[2]}").run_async()

    # Not on uvloop, which cannot use the task factory that textual sets on Python 3.13.0.
    anyio.run(main)
    return 0


async def _look_twice(client: Client) -> View:
    """Rates need two readings."""
    before = Reading(clock.monotonic(), await client.status())
    await anyio.sleep(BETWEEN_S)
    return view(Reading(clock.monotonic(), await client.status()), before)


def _print(found: View, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"limit": limit(found), "view": found})
        return
    console = terminal.output()
    console.print(limit(found), soft_wrap=True)
    console.print(system_tables.headline(found), soft_wrap=True)
    for head, rows in (
        (system_tables.RUNS, system_tables.runs([run for run in found.runs if run.state in GOING_ON])),
        (system_tables.WORKERS, system_tables.workers(found.workers)),
        (system_tables.FAILURES, system_tables.failures(found)),
    ):
        if rows:
            console.print()
            console.print(system_tables.drawn(head, rows))


def _require_screen() -> None:
    try:
        import textual  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError:
        raise UsageError(
            "top needs the package 'textual', which is not installed: pip install 'gym-runtime[top]'; "
            "--once works without it"
        ) from None
    if not sys.stdout.isatty():
        raise UsageError("top needs a terminal; without one: --once, and --json for programs")
