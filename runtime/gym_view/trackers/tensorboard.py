"""TensorBoard: event files, which ``tensorboard --logdir FOLDER`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from gym_runtime.client import About

from gym_view.trackers.tracker import load
from gym_view.trackers.tracking import Tracking


def open_run(about: About) -> TensorboardRun:
    """Begin a run in its folder.

    Raises:
        UsageError: it is not installed.
    """
    library = load("tensorboardX", "tensorboard")
    writer = library.SummaryWriter(str(about.folder))
    settings = msgspec.json.format(msgspec.json.encode(about.settings), indent=2).decode()
    writer.add_text("settings", _block(settings), 0)
    return TensorboardRun(writer)


class TensorboardRun:
    """One run."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name.replace("@", "_at_"), value, step)
        self._writer.flush()

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        parts = [
            "\n".join(f"{name}: {cell}" for name, cell in zip(columns, row, strict=True)) for row in rows
        ]
        self._writer.add_text("rollouts", _block("\n\n".join(parts)), step)
        self._writer.flush()

    def alarm(self, name: str, text: str) -> None:
        self._writer.add_text(f"alarms/{name}", _block(text))
        self._writer.flush()

    def finish(self, *, failed: bool) -> None:
        self._writer.close()


def _block(text: str) -> str:
    """A text that TensorBoard, which reads Markdown, shows as it is: indented lines are code."""
    return "".join(f"    {line}\n" for line in text.splitlines())


track = partial(Tracking, "tensorboard", open_run)
