"""``start``: which pools are started, and a system that stays until it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from gym_runtime.cli.options import ModelOptions, StartOptions
from gym_runtime.cli.start import plan
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.system.spec import PoolSpec
from runtime.cli.started import SCRIPT, Started

FILE = """
nats = "nats://10.0.0.5:4222"
prefix = "lab"
[[pools]]
kind = "resource"
names = ["mcqa", "example_single_tool_call"]
processes = 4
[[pools]]
kind = "agent"
names = ["tool_loop"]
capacity = 100
[[pools]]
kind = "model"
model = { provider = "scripted", name = "message" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "system.toml"
    path.write_text(FILE)
    return path


def pools(*texts: str, **more: object) -> dict[str, PoolSpec]:
    model = ModelOptions(model=str(more.pop("model", "")))
    options = StartOptions(pools=texts, model=model, **more)  # type: ignore[arg-type]
    return {pool.kind: pool for pool in plan(options).pools}


def test_without_names_everything_is_started() -> None:
    found = pools(model="scripted/message", workers=2, concurrency=100)
    assert set(found) == {"agent", "resource", "model"}
    assert found["agent"].names == tuple(catalogue.names("agents"))
    assert found["agent"].capacity == 50
    assert "mcqa" in found["resource"].names
    assert found["model"].names == ("policy",)
    assert all(pool.processes == 2 for pool in found.values())


def test_kinds_and_names() -> None:
    found = pools("resource:mcqa, example_single_tool_call", "agent:tool_loop")
    assert found["resource"].names == ("mcqa", "example_single_tool_call")
    assert found["agent"].names == ("tool_loop",)
    assert "model" not in found


def test_the_small_engine_gets_no_more_than_it_can_do() -> None:
    assert pools()["agent"].capacity == 16
    assert pools(concurrency=500)["agent"].capacity == 500
    assert pools(model="scripted/message")["agent"].capacity == 1024


def test_a_file_is_taken_as_it_is(file: Path) -> None:
    system = plan(StartOptions(config=file))
    assert (system.nats, system.prefix) == (("nats://10.0.0.5:4222",), "lab")
    assert [(pool.kind, pool.processes, pool.capacity) for pool in system.pools] == [
        ("resource", 4, 0), ("agent", 1, 100), ("model", 1, 0),
    ]  # fmt: skip


def test_pools_pick_a_part_of_a_file(file: Path) -> None:
    found = pools("resource:mcqa", "model", config=file)
    assert set(found) == {"resource", "model"}
    assert found["resource"].names == ("mcqa",)
    assert found["resource"].processes == 4
    with pytest.raises(UsageError, match="the file has no pool 'resource:reasoning_gym'"):
        pools("resource:reasoning_gym", config=file)


def test_the_command_line_wins_over_the_file(file: Path) -> None:
    system = plan(
        StartOptions(
            config=file, nats="nats://a", prefix="x", workers=3, model=ModelOptions(model="scripted/other")
        ),
    )
    assert (system.nats, system.prefix) == (("nats://a",), "x")
    assert {pool.processes for pool in system.pools} == {3}
    assert [pool.model.name for pool in system.pools if pool.model] == ["other"]


# -- real systems -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_system_stays_says_what_is_ready_restarts_and_ends_cleanly(tmp_path: Path) -> None:
    with Started(tmp_path, "resource:mcqa", "agent", "model", "--model", "scripted/message") as started:
        table = [line.split("  ")[0] for line in started.lines]
        assert {"kind", "resource", "agent", "model"} <= set(table)
        assert any("policy = scripted/message" in line for line in started.lines)
        victim = next(int(line.split()[-1]) for line in started.lines if line.startswith("resource"))
        os.kill(victim, signal.SIGKILL)
        noted = json.loads(started.error_line())  # as the workers log: JSON where no terminal is
        assert noted["event"] == f"resource worker {victim} was killed by SIGKILL; it is started again"
        assert json.loads(started.error_line())["event"].endswith("is ready, serving mcqa")
        assert started.end(signal.SIGTERM) == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_worker_that_cannot_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    done = subprocess.run(
        [SCRIPT, "start", "--model", "openai/m", "--model-url", "http://127.0.0.1:1/v1"],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("gym-runtime: ")
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_requests_per_minute_are_of_the_model_that_is_served(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(
        '[[pools]]\nkind = "model"\n[pools.model]\nprovider = "openai"\nname = "m"\n'
        "requests_per_minute = 30\n"
    )
    for said, expected in ((None, 30), (60.0, 60)):
        options = StartOptions(config=file, model=ModelOptions(requests_per_minute=said))
        [pool] = plan(options).pools
        assert pool.model is not None
        assert (pool.model.name, pool.model.requests_per_minute) == ("m", expected)
    options = StartOptions(pools=("agent",), model=ModelOptions(requests_per_minute=1.0))
    with pytest.raises(UsageError, match="no model pool is to be started"):
        plan(options)
