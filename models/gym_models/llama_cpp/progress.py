"""How far a download is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_STEP = 0.2


@contextmanager
def shown(title: str) -> Generator[Callable[[int, int], None]]:
    """A ``report(done_bytes, total_bytes)`` that writes to standard error; silent until it is called."""
    if sys.stderr.isatty():
        yield from _bar(title)
    else:
        yield _lines(title)


def _bar(title: str) -> Generator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, visible=False)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        yield report


def _lines(title: str) -> Callable[[int, int], None]:
    due = 0.0

    def report(done: int, total: int) -> None:
        nonlocal due
        if done / total >= due:
            print(f"{title}: {done >> 20} of {total >> 20} MiB", file=sys.stderr, flush=True)
            due = done / total + _STEP if done < total else 2.0

    return report
