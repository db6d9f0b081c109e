"""A running system, seen by a command that joins it: its answers, and its pools.

The client is imported when a system is asked: a command's help needs none.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gym_runtime.cli.options import BrokerOptions

if TYPE_CHECKING:
    from gym_runtime.client import Client
    from gym_runtime.messages.run_control import RunControl

T = TypeVar("T")


def run_async(main: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Run a coroutine function to its end, on uvloop where there is one."""
    import anyio

    return anyio.run(main, *arguments, backend_options={"use_uvloop": sys.platform != "win32"})


def ask(broker: BrokerOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask a running system one thing.

    Raises:
        UsageError: no system was named.
    """
    from gym_runtime.client import connect

    urls = broker.required()

    async def main() -> T:
        async with connect(urls, prefix=broker.prefix) as gym:
            return await question(gym)

    return run_async(main)


def show_control(control: RunControl, *, as_json: bool) -> None:
    """Say what is set for a run now."""
    import msgspec

    from gym_runtime.cli import terminal

    fields = msgspec.structs.asdict(control)
    if as_json:
        terminal.print_json(fields)
        return
    said = {name: value for name, value in fields.items() if name not in ("run", "paused", "by", "at_s")}
    chosen = [f"{name}={value:g}" for name, value in said.items() if value is not None]
    state = "is paused" if control.paused else "goes on"
    terminal.say(f"run {control.run} {state}" + (f", with {', '.join(chosen)}" if chosen else ""))
