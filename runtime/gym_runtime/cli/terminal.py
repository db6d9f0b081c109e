"""The terminal: results go to standard output, everything else to standard error.

Nothing printed is taken for markup, nor obeyed by the terminal (`gym_runtime.escapes`): names
and messages come from elsewhere. Colours, their absence
(``NO_COLOR``), narrow windows and terminals without UTF-8 are `rich`'s business.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gym_runtime.escapes import in_json, shown

UNLIMITED = 10_000
Report = Callable[[int, int], None]


class _Console(Console):
    """Renders with every control character visible, so that a terminal does not obey it.

    Here and not on the stream: the stream also has the colours that `rich` itself writes.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else shown(text), style, control)


def output() -> Console:
    """Where results go; in a pipe or a file, lines are as long as they are."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNLIMITED
    return _Console(markup=False, highlight=False, emoji=False, width=width)


def errors() -> Console:
    """Where progress, notes and errors go."""
    return _Console(stderr=True, markup=False, highlight=False, emoji=False)


def say(text: str) -> None:
    """Print a line of the result, whatever its length."""
    output().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print a line beside the result: a note, or progress."""
    errors().print(text, soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.flush()
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.buffer.write(in_json(text).encode() + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def downloading(what: str) -> Generator[Report]:
    """Show the progress of one download: a bar on a terminal, a plain line elsewhere, nothing if it is not
    needed.

    The yielded function takes the bytes that are there and the bytes that there will be (0: not known).
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = errors()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"fetching {what}", total=None, visible=False)
        said = False

        def report(done_bytes: int, total_bytes: int) -> None:
            nonlocal said
            if not said and not console.is_terminal:
                console.print(f"fetching {what} ({total_bytes / 1e6:.0f} MB)", soft_wrap=True)
            said = True
            progress.update(task, completed=done_bytes, total=total_bytes or None, visible=True)

        yield report
