"""Downloads before a system starts: a bar on a terminal, a plain line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from gym_runtime.cli import terminal
from gym_runtime.environment import catalogue
from gym_runtime.workers.adapter import ModelSettings

Report = Callable[[int, int], None]


@contextmanager
def downloading(what: str) -> Generator[Report]:
    """Show the progress of one download; nothing at all if it turns out not to be needed.

    The yielded function takes the bytes that are there and the bytes that there will be (0: not known).
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = terminal.errors()
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


def fetch_weights(model: ModelSettings) -> None:
    """Have an embedded model's weights at hand before its worker needs them; nothing for other models.

    Raises:
        UsageError: they are nowhere to be had.
    """
    if model.provider == "embedded":
        fetch = catalogue.load("models", "embedded").fetch_weights
        with downloading(f"weights of {model.name}") as report:
            fetch(model.name, report)
