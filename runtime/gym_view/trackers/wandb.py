"""Weights & Biases. ``WANDB_MODE=offline`` writes files only; ``WANDB_PROJECT`` and the like hold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gym_runtime.client import About
from gym_runtime.errors import UsageError

from gym_view.trackers.tracker import PROJECT, load
from gym_view.trackers.tracking import Tracking


def open_run(about: About) -> WandbRun:
    """Begin a run.

    Raises:
        UsageError: it is not installed, or has no login.
    """
    wandb = load("wandb", "wandb")
    offline = os.environ.get("WANDB_MODE", "") in ("offline", "disabled", "dryrun")
    if not offline and not wandb.login(prompt=False):  # it would ask on the terminal, from a thread
        raise UsageError("wandb knows no API key: 'wandb login', WANDB_API_KEY, or WANDB_MODE=offline")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        name=about.run,
        config=about.settings,
        # What the terminal shows is ours, and the machine is not what is tracked.
        settings=wandb.Settings(console="off", x_disable_stats=True, silent=True),
    )
    return WandbRun(wandb, run)


class WandbRun:
    """One run."""

    def __init__(self, wandb: Any, run: Any) -> None:
        self._wandb = wandb
        self._run = run

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = self._wandb.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({"rollouts": table}, step=step)

    def alarm(self, name: str, text: str) -> None:
        self._run.alert(title=f"rewards of {name}", text=text)

    def finish(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


track = partial(Tracking, "wandb", open_run)
