"""Real trackers, without a network, are told of a real run. Those that are not installed are left out.

pip install wandb mlflow trackio tensorboardX
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from view.trackers.made import scalars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

READ_WANDB = """
import glob, json, os, struct
from wandb.proto.wandb_internal_pb2 import Record
(path,) = glob.glob(os.environ["WANDB_DIR"] + "/wandb/offline-run-*/run-*.wandb")
data, at, whole, found = open(path, "rb").read(), 7, b"", {}
while at + 7 <= len(data):  # LevelDB's log: chunks in blocks of 32 KiB
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    _, length, kind = struct.unpack_from("<IHB", data, at)
    whole += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        for item in Record.FromString(whole).history.item:
            found["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        whole = b""
"""
READ_MLFLOW = """
import mlflow
client = mlflow.MlflowClient()
(experiment,) = [one for one in client.search_experiments() if one.name == "gym-runtime"]
(run,) = client.search_runs([experiment.experiment_id])
(table,) = client.list_artifacts(run.info.run_id, "rollouts")
rows = client.load_table(experiment.experiment_id, table.path, [run.info.run_id])
found = {"numbers": run.data.metrics, "settings": run.data.params}
found |= {"rows": len(rows), "state": run.info.status}
"""
READ_TRACKIO = """
from trackio.sqlite_storage import SQLiteStorage
(name,) = SQLiteStorage.get_runs("gym-runtime")
logs = SQLiteStorage.get_logs("gym-runtime", name)
numbers = {key: value for log in logs for key, value in log.items()}
found = {"numbers": numbers, "rows": len(numbers["rollouts"]["_value"])}
"""


def read(script: str, environment: dict[str, str]) -> dict[str, Any]:
    code = script + "\nimport json; print(json.dumps(found, default=str))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_run_is_in_the_tracker(name: str, tmp_path: Path) -> None:
    library = {"tensorboard": "tensorboardX"}.get(name, name)
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install {library}")
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", "mcqa", "--repeats", "2"]
    options = ["--model", "scripted/echo", "--track", name, "-o", "quiz.jsonl"]
    done = subprocess.run(
        [*command, *options, "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    numbers: dict[str, Any]
    if name == "tensorboard":
        (folder,) = (tmp_path / "quiz_tensorboard").iterdir()
        numbers = {tag: steps[max(steps)] for tag, steps in scalars(folder).items()}
        again = subprocess.run(
            [*command, *options, "--overwrite"], cwd=tmp_path, env=environment, check=False
        )
        assert again.returncode == 0
        assert len([*(tmp_path / "quiz_tensorboard").iterdir()]) == 2, "of each run by itself"
    elif name == "wandb":
        numbers = read(READ_WANDB, environment)
        (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.json")
        assert len(json.loads(table.read_bytes())["data"]) == 5, "one of each task"
    else:
        found = read(READ_MLFLOW if name == "mlflow" else READ_TRACKIO, environment)
        numbers = found["numbers"]
        assert found["rows"] == 5, "one of each task"
        if name == "mlflow":
            assert found["state"] == "FINISHED"
            assert found["settings"]["model"] == "scripted/echo"
    assert numbers["rollouts/done"] == summary["rollouts"] == 10
    assert numbers["reward/mean"] == pytest.approx(summary["mean_reward"])
    k = "pass@2" if "pass@2" in numbers else "pass_at_2"
    assert numbers[k] == pytest.approx(summary["pass_at"]["2"])
