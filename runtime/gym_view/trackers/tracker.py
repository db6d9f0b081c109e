"""What a tracker does, and how one is opened by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, Protocol, get_args

from gym_runtime.client.tracking import About
from gym_runtime.environment.catalogue import suggest
from gym_runtime.errors import UsageError

TrackerName = Literal["wandb", "mlflow", "tensorboard", "trackio"]
PROJECT = "gym-runtime"
"""What the project is called where the tracker's own variable (WANDB_PROJECT and the like) names none."""


class Tracker(Protocol):
    """One run in a tracker. It is called from one thread only, and may block it."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve; steps increase."""
        ...

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a table; cells are numbers, texts or None."""
        ...

    def finish(self, *, failed: bool) -> None:
        """Hand over everything, and end the run."""
        ...


def open_tracker(name: str, about: About) -> Tracker:
    """Begin a run in a tracker.

    Raises:
        UsageError: there is no such tracker, or its library is not installed.
    """
    if name not in get_args(TrackerName):
        known = list(get_args(TrackerName))
        raise UsageError(f"there is no tracker '{name}'{suggest(name, known)}: use one of {', '.join(known)}")
    module: Any = import_module(f"gym_view.trackers.{name}")
    return module.open_run(about)


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
