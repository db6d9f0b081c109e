"""``view``: the page that shows rollouts, served to this machine only, or written as files to share."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import AsyncExitStack
from typing import Any

import anyio
from gym_view import page_export, web_server
from gym_view.run_files import find_runs

from gym_runtime.cli import terminal
from gym_runtime.cli.options.data_options import ViewOptions
from gym_runtime.errors import GymError


def view(options: ViewOptions) -> int:
    """Serve until interrupted, or export.

    Raises:
        UsageError: there is nothing to show, the port is taken, or the export cannot be written.
    """
    if options.export is not None:
        runs = find_runs(options.places, failures_as_zero=options.failures_as_zero)
        written = page_export.export(runs, options.export)
        terminal.output().print(
            f"{written.files:,} files, {written.size_bytes:,} bytes: {options.export}", soft_wrap=True
        )
        return 0
    anyio.run(_serve, options, backend_options={"use_uvloop": sys.platform != "win32"})
    return 0


async def _join(stack: AsyncExitStack, options: ViewOptions) -> web_server.SystemState | None:
    """A running system, to be asked for its state; None, with a note, where it is not reached."""
    from gym_runtime.cli.state_json import full_status
    from gym_runtime.client import connect

    try:
        client = await stack.enter_async_context(connect(options.broker.urls, prefix=options.broker.prefix))
    except GymError as error:  # its address may come from the environment, and files can be read without it
        terminal.errors().print(f"the page shows files only: {error}", soft_wrap=True)
        return None

    async def ask() -> dict[str, Any]:
        return full_status(await client.status())

    return ask


async def _serve(options: ViewOptions) -> None:
    async with AsyncExitStack() as stack:
        system = await _join(stack, options) if options.broker.urls else None
        zero = options.failures_as_zero
        serving = web_server.serve(options.places, options.port, system, failures_as_zero=zero)
        access = await stack.enter_async_context(serving)
        terminal.output().print(access.url, soft_wrap=True)
        sys.stdout.flush()
        if not options.no_open and sys.stdout.isatty():
            await anyio.to_thread.run_sync(webbrowser.open, access.url)
            terminal.errors().print("Ctrl-C ends it")
        await anyio.sleep_forever()
