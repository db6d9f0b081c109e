"""MLflow. ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` hold."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from gym_runtime.client import About

from gym_view.trackers.tracker import PROJECT, load
from gym_view.trackers.tracking import Tracking

MOST_PARAMETER_CHARACTERS = 500


def open_run(about: About) -> MlflowRun:
    """Begin a run.

    Raises:
        UsageError: it is not installed.
    """
    mlflow = load("mlflow", "mlflow")
    client = mlflow.MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    # The client, and no active run: that belongs to a thread, and to a trainer that has one of its own.
    run = client.create_run(experiment_id, run_name=about.run)
    for key, value in about.settings.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        client.log_param(run.info.run_id, allowed(key), text[:MOST_PARAMETER_CHARACTERS])
    return MlflowRun(mlflow, client, run.info.run_id)


def allowed(name: str) -> str:
    """A name in the characters that MLflow allows.

    >>> allowed("pass@4"), allowed("reward/mean")
    ('pass_at_4', 'reward/mean')
    """
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


class MlflowRun:
    """One run."""

    def __init__(self, mlflow: Any, client: Any, run_id: str) -> None:
        self._metric = mlflow.entities.Metric
        self._client = client
        self._run_id = run_id

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        metrics = [self._metric(allowed(name), value, now_ms, step) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        cells = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        self._client.log_table(self._run_id, cells, f"rollouts/{step:09}.json")

    def alarm(self, name: str, text: str) -> None:
        self._client.set_tag(self._run_id, f"alarm.{name}", text)

    def finish(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")


track = partial(Tracking, "mlflow", open_run)
