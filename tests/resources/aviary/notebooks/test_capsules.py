"""The data of notebooks: tasks of the published sets, and the folders of their files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from gym_resources.aviary_episodes import bixbench, capsules, hypothesis
from gym_runtime.errors import AssetMissing, TaskError
from gym_runtime.files.row_reader import BadRow, RowReader
from resources.aviary.notebooks.notebook_runs import PROBLEM, resource, steps
from resources.judging import NEMO_GYM_ROWS, call, row

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An asset's folder, with nothing of the cache."""
    monkeypatch.setenv("GYM_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "data"
    place.mkdir()
    for one in (*tmp_path.parents[:2], tmp_path):
        one.chmod(0o755)
    return place


def test_rows_of_nemo_gym_name_tasks_of_the_data_sets() -> None:
    lines = [b'{"task_idx": 3}', *read_rows("bixbench_example.jsonl")]
    for line in lines:
        found = RowReader("bixbench_aviary").read(line)
        task = resource().task(found.line)
        assert isinstance(task, bixbench.NotebookTask)
        assert task.task_idx == json.loads(line)["task_idx"]
    for line in read_rows("bbh_train_example.jsonl"):
        assert RowReader().read(line).environment.name == "bbh_aviary"
    with pytest.raises(BadRow, match="responses_create_params"):
        RowReader("mcqa").read(b'{"task_idx": 3}')


def read_rows(file: str) -> list[bytes]:
    path = NEMO_GYM_ROWS / "aviary" / file
    return [line for line in path.read_bytes().splitlines() if line] if path.is_file() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting", "file"),
    [
        ("bixbench_aviary", "BIXBENCH_CAPSULE_DATA_LOCATION", "BixBench.jsonl"),
        ("bbh_aviary", "GYM_BBH_CAPSULES", "bbh.jsonl"),
    ],
)
async def test_a_task_of_the_data_set(
    name: str, setting: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = row(task_idx=1)
    with pytest.raises(AssetMissing, match=f"{file} .* set {setting} to a folder"):
        await resource(name).open(task)
    monkeypatch.setenv(setting, str(folder))
    problem = {**PROBLEM, "id": "own-1", "question": "Q", "ideal": "7", "capsule_uuid": "own-1"}
    lines = [{**problem, "id": "other", "capsule_uuid": "other"}, problem]
    (folder / file).write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    with pytest.raises(AssetMissing, match="CapsuleData-own-1 "):
        await resource(name).open(task)
    with pytest.raises(TaskError, match=f"task_idx is 2; {file} has 2 tasks"):
        await resource(name).open(row(task_idx=2))
    (folder / "CapsuleData-own-1").mkdir()
    (folder / "CapsuleData-own-1" / "seven.txt").write_text("7")
    tool = call("edit_cell", {"contents": "!cat seven.txt"}) if name == "bixbench_aviary" else None
    [(read, _)] = await steps(name, task, [tool or call("run_cell", {"code": "!cat seven.txt"})])
    assert "7" in read[-1]
    (folder / file).write_text("{}\n{}\n")
    os.utime(folder / file, (1, 1))
    with pytest.raises(TaskError, match=f"{file}, line 2"):
        await resource(name).open(task)


@pytest.mark.parametrize("path", ["../secrets", "/etc", "CapsuleData-x/../../y", "", "."])
def test_a_capsule_is_below_the_asset(path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_BBH_CAPSULES", str(folder))
    (folder.parent / "secrets").mkdir()
    with pytest.raises(AssetMissing):
        capsules.capsule(hypothesis.CAPSULES, "bbh_aviary", [path])


def test_a_capsule_is_found_where_its_zip_has_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIXBENCH_CAPSULE_DATA_LOCATION", str(folder))
    for number, place in enumerate(("", "CapsuleFolder-2/", "CapsuleFolder-3/CapsuleFolder-3/"), 1):
        made = folder / f"{place}CapsuleData-{number}"
        made.mkdir(parents=True)
        assert bixbench.Problem("Q", "A", str(number)).folder() == made.resolve()


@pytest.mark.skipif(not shutil.which("unzip"), reason="unzip is not installed")
def test_the_capsules_are_installed(folder: Path) -> None:
    """By the script, with a `curl` that finds zips in a folder; a second time nothing is fetched."""
    (hub := folder / "hub").mkdir()
    for name in ("CapsuleFolder-1", "CapsuleFolder-2"):
        with zipfile.ZipFile(hub / f"{name}.zip", "w") as made:
            made.writestr(f"CapsuleData-{name[-1]}/data.csv", "x")
    (curl := folder / "bin" / "curl").parent.mkdir()
    curl.write_text(
        f'#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && to=$2; shift; done\n'
        f'echo "$1" >>{folder}/asked\ncp {hub}/"${{1##*/}}" "$to"\n'
    )
    curl.chmod(0o755)
    (place := folder / "asset").mkdir()
    names = ["CapsuleFolder-1.zip", "CapsuleFolder-2.zip", "../evil.zip", "a b.zip", "CapsuleFolder-1.zip"]
    rows = [{"question": "Q", "data_folder": name, "capsule_uuid": "1"} for name in names]
    (place / "BixBench.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    path = f"{curl.parent}:{os.environ['PATH']}"
    for _ in range(2):
        script = ["/bin/sh", "-c", bixbench.CAPSULES.install]
        subprocess.run(script, cwd=place, env={"PATH": path}, check=True)
    asked = (folder / "asked").read_text().splitlines()
    assert asked == [f"{bixbench.HUB}/{name}" for name in names[:2]]
    assert (place / "CapsuleFolder-2" / "CapsuleData-2" / "data.csv").read_text() == "x"
