"""Killing workers of a real system leaves the count of rollouts exact."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages import metric_names
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.background import hosting
from gym_view.metrics.gathering import SystemFigures
from runtime.cli.started import SCRIPT
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]
NAME = "example_session_state_mgmt"
ROLLOUTS = 600
KILLED = {100: "agent", 200: "resource", 300: "model"}


def kill(system: System, kind: str) -> None:
    os.kill(next(event.pid for event in system.workers.values() if event.kind == kind), signal.SIGKILL)


async def test_the_sum_of_rollouts_is_the_number_of_results() -> None:
    rows = [
        {"responses_create_params": {"input": "go"}, "initial_count": 3, "expected_count": 4, "n": number}
        for number in range(ROLLOUTS)
    ]
    with stub_engine.running("--latency-s", "0.02") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        pools = make_pools([NAME], model, workers=2, concurrency=64)
        async with (
            running(SystemSpec(pools=pools)) as system,
            connect(nats=system.url) as gym,
            hosting() as tasks,
        ):
            figures = SystemFigures(gym.driver.bus)
            tasks.start_soon(figures.follow)
            received = 0
            async for _ in gym.rollouts(rows, environment=NAME):
                received += 1
                if received in KILLED:
                    kill(system, KILLED[received])
            assert received == ROLLOUTS
            with anyio.fail_after(20 * busy()):
                while figures.figures().total(metric_names.ROLLOUTS) < ROLLOUTS:
                    await anyio.sleep(0.1)
            await figures.look()
            found = figures.figures()
            assert found.total(metric_names.ROLLOUTS, {"gym.environment": NAME}) == ROLLOUTS
            assert found.distribution(metric_names.ROLLOUT_DURATION).count == ROLLOUTS
            # Of what workers count of their own work, the last seconds of the killed ones are missing.
            assert found.distribution(metric_names.HOP_DURATION, {"gym.hop": "verify"}).count > ROLLOUTS / 2


@contextmanager
def run(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        SCRIPT,
        "run",
        NAME,
        "--model",
        "openai/stub",
        "--input",
        "rows.jsonl",
        "--output",
        "out.jsonl",
    ]
    with subprocess.Popen([*command, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.soak
async def test_what_a_killed_client_has_written_is_counted_by_the_next(tmp_path: Path) -> None:
    rows = [
        {"responses_create_params": {"input": "go"}, "initial_count": 3, "expected_count": 4, "n": number}
        for number in range(ROLLOUTS)
    ]
    (tmp_path / "rows.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    written = tmp_path / "out.jsonl"
    with stub_engine.running("--latency-s", "0.5") as engine:
        # A broker alone: `run` brings its own workers.
        async with (
            running(SystemSpec(pools=())) as system,
            connect(nats=system.url) as gym,
            hosting() as tasks,
        ):
            figures = SystemFigures(gym.driver.bus)
            tasks.start_soon(figures.follow)
            options = ("--nats", system.url, "--model-url", engine.url, "--concurrency", "64")

            def count() -> int:
                return written.read_bytes().count(b"\n") if written.exists() else 0

            def told() -> float:
                return figures.figures().total(metric_names.ROLLOUTS)

            # What a client tells may be on its way when it is killed: then the next one is killed, too.
            for least in (ROLLOUTS // 4, ROLLOUTS // 2, ROLLOUTS * 3 // 4):
                with run(tmp_path, *options, *(["--resume"] if count() else [])) as first:
                    with anyio.fail_after(30 * busy()):
                        while count() < least or told() >= count():
                            await anyio.sleep(0.02)
                    first.kill()
                await anyio.sleep(0.2)
                if told() < count():
                    break
            told_before, before = told(), count()
            with run(tmp_path, *options, "--resume") as second, anyio.fail_after(60 * busy()):
                _, said = await anyio.to_thread.run_sync(second.communicate)
            assert second.returncode == 0, said
            lines = written.read_bytes().splitlines()
            assert len(lines) == ROLLOUTS
            assert told_before < before < ROLLOUTS  # else nothing was to be counted by the next
            with anyio.fail_after(20 * busy()):
                while figures.figures().total(metric_names.ROLLOUTS) < ROLLOUTS:
                    await anyio.sleep(0.1)
            await figures.look()
            found = figures.figures()
            assert found.total(metric_names.ROLLOUTS, {"gym.environment": NAME}) == ROLLOUTS
            assert found.distribution(metric_names.ROLLOUT_REWARD).count == ROLLOUTS
            assert found.total(metric_names.ROLLOUT_ROWS) == sum(map(len, lines))
            tokens = sum(msgspec.json.decode(line)["response"]["usage"]["total_tokens"] for line in lines)
            assert found.total(metric_names.ROLLOUT_TOKENS) == tokens
