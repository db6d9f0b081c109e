"""What each tracker does, and how its library is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from gym_runtime.errors import UsageError

PROJECT = "gym-runtime"
"""What the project is called where the tracker's own variable (WANDB_PROJECT and the like) names none."""


class OpenRun(Protocol):
    """One run in a tracker. It is called from one thread only, and may block it."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve; steps increase."""
        ...

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a table; cells are numbers, texts or None."""
        ...

    def alarm(self, name: str, text: str) -> None:
        """Show an alarm of an environment of this name."""
        ...

    def finish(self, *, failed: bool) -> None:
        """Hand over everything, and end the run."""
        ...


def load(library: str, extra: str) -> Any:
    """A tracker's library.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise UsageError(
            f"tracking with {extra} needs the package '{library}', which is not installed: "
            f"pip install 'gym-runtime[{extra}]'"
        ) from None
