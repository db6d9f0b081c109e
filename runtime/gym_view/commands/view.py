"""``view``: the page that shows rollouts, served to this machine only, or written as files to share."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from gym_runtime.cli import BROKER, Broker, FailuresAsZero, Port, run_async, terminal
from gym_runtime.errors import GymError, UsageError
from gym_runtime.plurals import counted

from gym_view import page_export, web_server
from gym_view.run_files import find_runs
from gym_view.vocabulary import Vocabulary


def view(
    *places: Path,
    port: Port = 0,
    no_open: bool = False,
    export: Path | None = None,
    overwrite: bool = False,
    tokenizer: Path | None = None,
    failures_as_zero: FailuresAsZero = False,
    broker: Broker = BROKER,
) -> int:
    """Show rollouts on a page: why this reward, which tasks carry signal, what failed, two runs compared.

    For NeMo Gym's files too. The page is served to this machine only; the address carries a token. With a
    broker it shows the running system as well.

    Args:
        places: Files of rollouts, or folders; by default results.
        port: Where the page is served; 0 lets the system choose.
        no_open: Only print the address.
        export: Write the page and the rollouts into this folder, for any static host; as one file if the
            name ends in .html.
        overwrite: Replace an exported .html file.
        tokenizer: The model's tokenizer.json, or its folder: tokens that rows have as ids get texts.
    """
    vocabulary = None if tokenizer is None else Vocabulary(tokenizer)
    if export is not None:
        if export.is_file() and not overwrite:
            raise UsageError(f"{export} is there already; choose another name, or --overwrite")
        runs = find_runs(places, failures_as_zero=failures_as_zero)
        written = page_export.export(runs, export, vocabulary)
        terminal.say(f"{counted(written.files, 'file')}, {counted(written.size_bytes, 'byte')}: {export}")
        return 0

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            system = await _join(stack, broker) if broker.urls else None
            serving = web_server.serve(
                places, port, system, failures_as_zero=failures_as_zero, vocabulary=vocabulary
            )
            access = await stack.enter_async_context(serving)
            terminal.say(access.url)
            sys.stdout.flush()
            if not no_open and sys.stdout.isatty():
                await anyio.to_thread.run_sync(webbrowser.open, access.url)
                terminal.note("Ctrl-C ends it")
            await anyio.sleep_forever()

    run_async(serve)
    return 0


async def _join(stack: AsyncExitStack, broker: Broker) -> web_server.SystemState | None:
    """A running system, to be asked for its state; None, with a note, where it is not reached."""
    from gym_runtime import clock, connect
    from gym_signal import standings

    from gym_view.live import Reading
    from gym_view.state_json import full_status

    try:
        client = await stack.enter_async_context(connect(broker.urls, prefix=broker.prefix))
    except GymError as error:  # its address may come from the environment, and files can be read without it
        terminal.note(f"the page shows files only: {error}")
        return None

    before: Reading | None = None

    async def ask() -> dict[str, Any]:
        nonlocal before
        now = Reading(clock.monotonic(), await client.status())
        found, before = full_status(now, before, await standings(client.driver.bus)), now
        return found

    return ask
