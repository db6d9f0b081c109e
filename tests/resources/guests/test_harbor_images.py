"""Tasks in Harbor's format in containers of podman: each feature once, and against Harbor's own runner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime.messages.outcomes import RolloutRecord
from gym_sandbox import container_engines
from gym_testing.small_system import answer
from resources.guests import harbor_sets, harbor_varied
from resources.guests.guest_runs import OWN, guest, made, own_rows
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(1800)]

VARIED = 38
"""Two times; with a task for each feature these are a hundred."""
DIFFERENT = {"windows-lines"}
"""Harbor leaves scripts their ends of lines as on Windows, so they do not run."""


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[images.Engine]:
    """Podman with an image; nothing of a test's is left in it afterwards."""
    engine = images.engine("podman")
    if engine.refusal:
        pytest.skip(engine.refusal)
    for name, value in {**engine.variables, container_engines.SETTING: engine.name}.items():
        monkeypatch.setenv(name, value)
    container_engines.counts.cache_clear()
    yield engine
    container_engines.counts.cache_clear()
    container_engines.remove_images()
    left = engine.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
    assert not [name for name in left if name.startswith(f"gym-{os.getpid()}-")]
    kept = engine.run("images", "--format", "{{.Repository}}").stdout.split()
    assert not [name for name in kept if str(os.getpid()) in name and name != images.NAME]


async def played(folder: Path, play: str, more: str = "") -> dict[str, RolloutRecord]:
    name = f"harbor:{folder}?play={play}{more}"
    async with guest(name, answer("-")) as system:
        rows = own_rows(name)
        records = await made(system, name, rows)
    return {row["harbor"]["path"]: record for row, record in zip(rows, records, strict=True)}


def theirs(folder: Path, agent: str, jobs: Path) -> dict[str, float | None]:
    """The rewards that Harbor's own runner books, None for a trial without one."""
    path = f"{OWN}:{os.environ.get('PYTHONPATH', '')}"
    told = ["harbor", "run", "-p", str(folder), "-a", agent, "-n", "2", "-o", str(jobs), "--yes", "-q"]
    told += ["--job-name", agent, "--environment-import-path", "harbor_engine:Podman", "--max-retries", "0"]
    done = subprocess.run(
        told, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    found: dict[str, float | None] = {}
    for file in (jobs / agent).glob("*/result.json"):
        trial = json.loads(file.read_bytes())
        rewards = (trial.get("verifier_result") or {}).get("rewards") or {}
        found[Path(trial["task_id"]["path"]).name] = rewards.get("reward")
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    return found


async def test_each_feature_with_the_tasks_own_solution_and_with_nothing(
    podman: images.Engine, tmp_path: Path
) -> None:
    names = harbor_sets.features(tmp_path / "tasks", images.NAME)
    assert len(names) >= 24
    oracle = await played(tmp_path / "tasks", "oracle")
    assert sorted(oracle) == names
    assert {name: one.ending for name, one in oracle.items() if one.reward != 1.0} == {}
    nop = await played(tmp_path / "tasks", "nop", "&control=none")
    wrong = {name: (one.reward, one.ending) for name, one in nop.items() if not 0 <= (one.reward or 0) < 1}
    wrong |= {name: (None, one.ending) for name, one in nop.items() if one.reward is None}
    assert wrong == {}
    if shutil.which("harbor") is None:
        pytest.skip("ours is right; to compare with Harbor's own runner, put harbor on the PATH")
    for agent, ours in (("oracle", oracle), ("nop", nop)):
        booked = theirs(tmp_path / "tasks", agent, tmp_path / "jobs")
        differ = {name for name, one in ours.items() if one.reward != booked[name]}
        assert differ <= DIFFERENT, (agent, booked)


@pytest.mark.parametrize("seed", [33, 34])
async def test_tasks_with_random_features(podman: images.Engine, tmp_path: Path, seed: int) -> None:
    if shutil.which("harbor") is None:
        pytest.skip("put harbor on the PATH")
    folder = tmp_path / "tasks"
    names = harbor_varied.write(folder, images.NAME, VARIED, seed=seed)
    differ: dict[str, dict[str, tuple[float | None, float | None, str]]] = {}
    graded = 0
    for agent in ("oracle", "nop"):
        ours = await played(folder, agent, "&control=none")
        booked = theirs(folder, agent, tmp_path / "jobs")
        assert sorted(ours) == sorted(booked) == names
        graded += sum(one.reward is not None for one in ours.values())
        differ[agent] = {
            name: (one.reward, booked[name], one.ending)
            for name, one in ours.items()
            if one.reward != booked[name]
        }
    assert VARIED < graded < 2 * VARIED  # both rewards and outages of graders are among them
    assert not any(differ.values()), differ
