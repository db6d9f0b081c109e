"""A run whose engine answers nothing but errors stops soon, with the engine's words and the way on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

STOPPED_WITHIN_S = 25.0
"""15 s are promised; a busy machine takes longer to start."""


def run(engine: stub_engine.StubEngine, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "gym_runtime.cli.main", "run", "mcqa", "--repeats", "4"),
        *("--output", str(folder / "out.jsonl"), "--model", "openai/stub", "--model-url", engine.url, *more),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=80, check=False)


def test_an_engine_that_is_only_overloaded_stops_the_run_with_its_words(tmp_path: Path) -> None:
    with stub_engine.running("--fault", "503") as engine:
        started_s = time.monotonic()
        done = run(engine, tmp_path)
        assert time.monotonic() - started_s < STOPPED_WITHIN_S * busy()
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("gym-runtime: the engine of openai/stub has returned only errors: ")
    assert "503" in last
    assert "--resume" in last
    assert last.endswith("--keep-going")


def test_an_engine_that_refuses_every_call_stops_even_a_small_run(tmp_path: Path) -> None:
    with stub_engine.running("--fault", "404") as engine:
        done = run(engine, tmp_path)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("gym-runtime: the engine of openai/stub has returned only errors: ")
    assert "answered 404" in last
    assert "--resume --retry-failed" in last


def test_a_run_that_cannot_start_leaves_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", "mcqa", "--model", "scripted/nope"]
    command += ["--output", str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
    good = [*command[:6], "scripted/message", *command[7:]]
    subprocess.run(good, capture_output=True, timeout=80, check=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert subprocess.run([*command, "--overwrite"], capture_output=True, timeout=80).returncode == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    subprocess.run([*good, "--overwrite"], capture_output=True, timeout=80, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {*before}


def test_keep_going_lets_every_rollout_fail_by_itself(tmp_path: Path) -> None:
    with stub_engine.running("--fault", "401") as engine:
        done = run(engine, tmp_path, "--keep-going", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["summary"]["outcomes"]["failed"] == 20


def test_an_engine_that_fails_now_and_then_stops_nothing(tmp_path: Path) -> None:
    with stub_engine.running("--fault", "503=0.5") as engine:
        done = run(engine, tmp_path, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]["rollouts"] == 20


AWAY_S = 110.0
"""Longer than a rollout's calls and attempts are repeated."""


@pytest.mark.timeout(300)
def test_rollouts_wait_for_an_engine_that_starts_again(tmp_path: Path) -> None:
    with stub_engine.running("--latency-s", "1") as engine:
        port = engine.url.removesuffix("/v1").rpartition(":")[2]
        command = [
            *(sys.executable, "-m", "gym_runtime.cli.main", "run", "mcqa", "--repeats", "20", "--json"),
            *("--output", str(tmp_path / "out.jsonl"), "--model", "openai/stub", "--model-url", engine.url),
            *("--concurrency", "8"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            while engine.stats().requests < 24:
                time.sleep(0.2)
            os.kill(engine.pid, signal.SIGKILL)
            time.sleep(AWAY_S)
            assert run.poll() is None
            with stub_engine.running("--port", port):
                out, said = run.communicate(timeout=100)
    assert run.returncode == 0
    assert json.loads(out)["summary"]["outcomes"]["completed"] == 100
    assert "8 in progress, waiting for the model's engines: nothing listens at" in said
