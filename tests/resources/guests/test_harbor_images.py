"""Tasks in Harbor's format in containers of podman: each feature once, and against Harbor's own runner."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_sandbox import container_engines
from gym_testing.small_system import Engine, answer, function_call
from resources.guests import harbor_sets, harbor_varied
from resources.guests.guest_runs import OWN, guest, made, own_rows
from resources.guests.harbor_folders import TOML, task
from resources.guests.mcp_servers import COUNTER
from sandbox import images

pytestmark = [pytest.mark.anyio, pytest.mark.soak, pytest.mark.timeout(1800)]

KILLED = 14
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
    """The rewards that Harbor's own runner books, None for a trial without one.

    Also for a trial with a step whose tests gave none: Harbor leaves the step out of the mean.
    """
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
        outage = any(step["exception_info"] for step in trial.get("step_results") or [])
        found[Path(trial["task_id"]["path"]).name] = None if outage else rewards.get("reward")
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
        pytest.skip("to compare with Harbor's own runner, put harbor on the PATH")
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


async def test_mcp_servers_of_an_image_reach_the_model(podman: images.Engine, tmp_path: Path) -> None:
    """A server that the agent ends is started again; what it has done in the box is there for the tests."""
    dockerfile = f"FROM {images.NAME}\nWORKDIR /app\nCOPY server.py /srv/server.py\n"
    server = '[[environment.mcp_servers]]\nname = "db"\ntransport = "stdio"\ncommand = "python3"\n'
    toml = TOML.replace("[agent]", f'{server}args = ["/srv/server.py"]\n[agent]')
    files = {"environment/server.py": COUNTER, "environment/Dockerfile": dockerfile}
    task(tmp_path / "tasks" / "count", toml=toml, **files)
    name = f"harbor:{tmp_path / 'tasks'}?control=none"
    end = "kill $(cat /tmp/.mcp-db/pid); ls /srv; echo 3 >out.txt"
    engine = Engine(
        answer(function_call("db__count_add", '{"amount": 2}', "c1")),
        answer(
            function_call("bash", json.dumps({"command": end}), "c2"),
            function_call("db__count_add", '{"amount": 5}', "c3"),
        ),
        answer("Done."),
    )
    async with guest(name, engine) as system:
        (record,) = await made(system, name, own_rows(name))
    assert (record.reward, record.ending) == (1.0, "completed")
    last = engine.calls.items[-1][0]
    items = [json.loads(bytes(raw)) for raw in last.input]
    outputs = {one["call_id"]: one["output"] for one in items if "output" in one}
    assert outputs["c1"].startswith("count 2")
    assert "server.py" in outputs["c2"]
    assert outputs["c3"].startswith("count 5")


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_workers_that_are_killed_leave_no_container(podman: images.Engine, tmp_path: Path) -> None:
    harbor_sets.sums(tmp_path, KILLED, lambda _: f'docker_image = "{images.NAME}"\nworkdir = "/app"\n')
    name = f"harbor:{tmp_path}?play=oracle"
    model = ModelSettings(provider="scripted", name="echo", options={"latency_s": 0.1})
    spec = SystemSpec(pools=make_pools([name], model, workers=2, concurrency=4))
    before = set(re.findall(r"gym-\d+-", podman.run("ps", "--all", "--format", "{{.Names}}").stdout))
    records: list[RolloutRecord] = []
    pids, killed = set[int](), set[int]()
    async with running(spec) as system, connect(nats=system.url) as gym:
        async for record in gym.rollouts(own_rows(name), environment=name):
            records.append(record)
            pids |= {event.pid for event in system.workers.values() if event.kind == "resource"}
            living = list(filter(alive, sorted(pids - killed)))
            if living and len(killed) < 3 and len(records) > 3 * len(killed):
                os.kill(living[0], signal.SIGKILL)
                killed.add(living[0])
    assert {record.task_index for record in records} == set(range(KILLED))
    assert len(records) == KILLED
    assert [record.ending for record in records if record.reward != 1.0] == []

    def left() -> list[str]:
        names = podman.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
        owners = [re.match(r"gym-(\d+)-", one) for one in names]
        return [one[0] for one in owners if one and not alive(int(one[1])) and one[0] not in before]

    with anyio.move_on_after(60):
        while left():
            await anyio.sleep(1)
    assert len(killed) >= 2  # each of the first two
    assert left() == []
