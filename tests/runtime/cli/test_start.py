"""``start``: which pools are started, and a system that stays until it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.options import ModelOptions
from gym_runtime.cli.start import StartOptions, plan
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.system.spec import PoolSpec
from ports import free_port, restartable_broker
from runtime.cli.in_process import ran
from runtime.cli.started import SCRIPT, Started
from stubs import stub_engine

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
    options = StartOptions(model=model, **more)  # type: ignore[arg-type]
    return {pool.kind: pool for pool in plan(options, texts).pools}


def event(line: str) -> str:
    """What a line of the log says."""
    return json.loads(line)["event"]


def test_without_names_everything_is_started() -> None:
    found = pools(model="scripted/message", workers=2, concurrency=100)
    assert set(found) == {"agent", "resource", "model"}
    assert found["agent"].names == tuple(catalogue.names("agents"))
    assert found["agent"].capacity == 50
    assert "mcqa" in found["resource"].names
    assert found["model"].names == ("policy",)
    assert all(pool.processes == 2 for pool in found.values())


def test_what_is_left_out_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise UsageError(f"{name} needs a package")

    monkeypatch.setattr("gym_runtime.environment.requirements.require", missing)
    number = len(catalogue.names("environments"))
    pools(model="scripted/message")
    out, err = capsys.readouterr()
    said = [line for line in (out + err).splitlines() if "warning" in line]
    assert len(said) == 1
    assert (
        f"{number} environments are not served, because something is missing here: 'gym-runtime ls'"
        in said[0]
    )


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
    arguments = ("resource:mcqa", "agent", "model", "--model", "scripted/message", "--metrics", "0")
    with Started(tmp_path, *arguments) as started:
        table = [line.split("  ")[0] for line in started.lines]
        assert {"kind", "resource", "agent", "model"} <= set(table)
        assert any("policy = scripted/message" in line for line in started.lines)
        metrics = started.output_line().removeprefix("metrics: ")
        with urllib.request.urlopen(metrics, timeout=10) as page:
            assert b'gym_workers{gym_pool="mcqa",gym_state="serving"' in page.read()
        victim = next(int(line.split()[-1]) for line in started.lines if line.startswith("resource"))
        os.kill(victim, signal.SIGKILL)
        # As the workers log: JSON where no terminal is.
        assert started.says(f"resource worker {victim} was killed by SIGKILL; it is started again")
        assert started.says(end="is ready, serving mcqa")
        assert ran(tmp_path, "drain", "resource", "agent", "model", "--nats", started.url).status == 0
        said = [event(started.error_line())]
        # The workers' own logs come between.
        while not said[-1].startswith("all workers have left; this command still runs the broker"):
            said.append(event(started.error_line()))
        assert sum(line.endswith("has left, as it was asked to") for line in said) == 3
        assert started.end(signal.SIGINT) == 130


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


def test_how_long_stopping_may_take_is_a_setting(file: Path) -> None:
    def planned(**more: Any) -> float:
        return plan(StartOptions(**more)).drain_s

    small = ModelOptions(model="scripted/message")
    assert planned(model=small) == 25.0
    file.write_text("drain_s = 50\n" + FILE)
    assert planned(config=file) == 50.0
    assert planned(config=file, drain_s=8.0) == 8.0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_second_term_changes_nothing_and_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    with stub_engine.running("--latency-s", "600") as engine:
        pools = ["resource:mcqa", "agent", "model", "--model", "openai/stub"]
        with Started(tmp_path, *pools, "--model-url", engine.url, "--drain", "20") as started:
            rows = catalogue.environment("mcqa").source.with_suffix(".jsonl")
            command = ("publish", str(rows), "--environment", "mcqa", "--nats", started.url)
            assert ran(tmp_path, *command).status == 0
            while not engine.stats().in_flight:
                time.sleep(0.01)
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
                started.signal(number)
            assert started.says("stopping") == (
                "stopping: rollouts in flight have 20 s to finish, then they go back to the queue; "
                "a second Ctrl-C ends at once"
            )
            assert started.runs_for(1.0)
            assert started.end(signal.SIGINT) == 130


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_first_interrupt_names_what_would_be_lost_with_the_broker(tmp_path: Path) -> None:
    with Started(tmp_path, "resource:mcqa", "agent", "model", "--model", "scripted/message") as started:
        rows = catalogue.environment("mcqa").source.with_suffix(".jsonl")
        there = ("--nats", started.url)
        run = ran(tmp_path, "publish", str(rows), "--environment", "mcqa", "--limit", "3", *there).out.strip()
        while json.loads(ran(tmp_path, "status", run, "--json", *there).out)["done"] < 3:
            pass
        started.signal(signal.SIGINT)
        assert started.says("not stopped") == (
            f"not stopped: 3 finished rollouts are not collected (run {run}), and would go with this broker: "
            "collect them first, or let 'gym-runtime start --state-dir DIR' keep them; "
            "a second Ctrl-C ends at once"
        )
        assert "3 completed" in ran(tmp_path, "collect", run, "-o", "r.jsonl", *there).out
        assert started.end(signal.SIGINT) == 130


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_workers_wait_for_a_broker_and_an_engine_and_say_so_once(tmp_path: Path) -> None:
    broker = restartable_broker(tmp_path / "broker")
    url = broker.start()
    broker.stop()
    port = free_port()
    command = [SCRIPT, "start", "model", "agent", "--model", "openai/stub", "--wait", "60"]
    with subprocess.Popen(
        [*command, "--model-url", f"http://127.0.0.1:{port}/v1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GYM_NATS_URL": url},
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert event(process.stderr.readline()).startswith("waiting up to 60 s: no broker at ")
        broker.restart()
        try:
            waiting = f"waiting up to 60 s: nothing listens at http://127.0.0.1:{port}/v1"
            assert event(process.stderr.readline()).startswith(waiting)
            with stub_engine.running("--port", str(port)):
                while "joined" not in (line := process.stdout.readline()):
                    assert line
                process.send_signal(signal.SIGTERM)
                assert event(process.stderr.readline()).startswith("stopping: ")
                assert process.wait(20) == 0
        finally:
            broker.stop()


def test_the_limit_of_an_engines_calls_is_of_the_models_that_are_served(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    pool = '[[pools]]\nkind = "model"\nnames = ["{}"]\n[pools.model]\nprovider = "openai"\nname = "m"\n{}\n'
    file.write_text(pool.format("policy", "call_timeout_s = 30") + pool.format("judge", ""))
    for said, expected in ((None, [30, None]), (0.0, [0, 0]), (60.0, [60, 60])):
        pools = plan(StartOptions(config=file, call_timeout_s=said)).pools
        assert [pool.model and pool.model.call_timeout_s for pool in pools] == expected
    with pytest.raises(UsageError, match="--call-timeout: no model pool is to be started"):
        plan(StartOptions(call_timeout_s=1.0), ["agent"])


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
    options = StartOptions(model=ModelOptions(requests_per_minute=1.0))
    with pytest.raises(UsageError, match="no model pool is to be started"):
        plan(options, ["agent"])
