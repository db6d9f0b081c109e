"""trackio: wandb's interface on a local database. ``TRACKIO_DIR`` and ``TRACKIO_SPACE_ID`` hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from gym_runtime.client import About

from gym_view.trackers.tracker import PROJECT, load
from gym_view.trackers.tracking import Tracking


def open_run(about: About) -> TrackioRun:
    """Begin a run.

    Raises:
        UsageError: it is not installed.
    """
    trackio = load("trackio", "trackio")
    with redirect_stdout(sys.stderr):  # it prints, and standard output may be a document of ours
        run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or PROJECT,
            name=about.run,
            config=about.settings,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    return TrackioRun(trackio, run)


class TrackioRun:
    """One run."""

    def __init__(self, trackio: Any, run: Any) -> None:
        self._trackio = trackio
        self._run = run

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = self._trackio.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({"rollouts": table}, step=step)

    def alarm(self, name: str, text: str) -> None:
        table = self._trackio.Table(columns=["environment", "alarm"], data=[[name, text]])
        self._run.log({"alarms": table})

    def finish(self, *, failed: bool) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()


track = partial(Tracking, "trackio", open_run)
