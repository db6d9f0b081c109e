"""SIGTERM to every process of a node, as from Slurm, systemd and a preempted machine, in the middle of a run.

Two `gym-runtime start agent` commands share the queue; one is preempted with rollouts in flight. The engine
counts its calls, so a turn that is asked for twice is seen.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest
from bench.counter_rows import ENVIRONMENT, counter_rows
from gym_runtime import connect
from gym_runtime.client import Client, RunInfo
from gym_runtime.files.rows import expand
from gym_runtime.messages import metric_names
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import Broker
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from runtime.cli.started import SCRIPT
from stubs import stub_engine
from stubs.stub_engine import StubEngine
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]

ROLLOUTS = 64
SLOTS = 8
AGENT = ("agent:tool_loop", "--concurrency", str(SLOTS))
VERDICTS = str(Path(__file__).parent / "environments" / "slow_verdict.py")


@contextmanager
def workers(url: str, log: Path, *more: str) -> Generator[psutil.Popen]:
    """``gym-runtime start``."""
    command = [SCRIPT, "start", *more]
    with log.open("wb") as file:
        started = psutil.Popen(command, env={**os.environ, "GYM_NATS_URL": url}, stdout=file, stderr=file)
    try:
        yield started
    finally:
        with suppress(psutil.NoSuchProcess):
            started.terminate()
        try:
            started.wait(40)
        except psutil.TimeoutExpired:
            started.kill()


def command_of(process: psutil.Process) -> str:
    """Its arguments; empty for one that has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def preempt(started: psutil.Popen) -> None:
    """SIGTERM to every process, twice."""
    processes = [started, *started.children(recursive=True)]
    for process in (*processes, *processes):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)


async def in_use(gym: Client) -> list[int]:
    return sorted(worker.in_use for worker in (await gym.status()).workers if worker.kind == "agent")


async def preempted(
    folder: Path, engine: StubEngine, *more: str
) -> tuple[list[RolloutRecord], psutil.Popen, str]:
    """All results of a run in which the first of two nodes was preempted, and what that node said."""
    broker = Broker(folder / "broker")
    url = broker.start()
    model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
    others = (
        PoolSpec(kind="resource", names=(ENVIRONMENT,)),
        PoolSpec(kind="model", names=("policy",), model=model),
    )
    try:
        async with running(SystemSpec(pools=others, nats=(url,))), connect(nats=url) as gym:
            with (
                workers(url, folder / "first.log", *AGENT, *more) as first,
                workers(url, folder / "second.log", *AGENT),
            ):
                engine.stats(reset=True)  # its worker has asked it what it can
                specs = expand(counter_rows(ROLLOUTS), run="run", environment=ENVIRONMENT)
                await gym.driver.open_run(RunInfo(run="run", total=ROLLOUTS))
                await gym.driver.publish(specs)
                with anyio.fail_after(30 * busy()):
                    while await in_use(gym) != [SLOTS, SLOTS]:
                        await anyio.sleep(0.05)
                preempt(first)
                records = [record async for record in gym.collect("run")]
                await anyio.to_thread.run_sync(first.wait, 40)
    finally:
        broker.stop()
    return records, first, (folder / "first.log").read_text()


def calls_of(records: list[RolloutRecord]) -> int:
    assert {type(record.outcome) for record in records} == {Completed}
    assert len({(record.task_index, record.rollout_index) for record in records}) == ROLLOUTS
    return sum(record.turns for record in records)


async def test_what_is_in_flight_finishes_and_nothing_is_repeated(tmp_path: Path) -> None:
    with stub_engine.running("--latency-s", "0.5") as engine:
        records, first, said = await preempted(tmp_path, engine)
        assert engine.stats().requests == calls_of(records)
    assert first.returncode == 0
    assert said.count("stopping: rollouts in flight have 25 s to finish") == 1
    assert {record.attempt for record in records} == {1}


@pytest.mark.soak
async def test_what_does_not_finish_goes_on_elsewhere_from_its_journal(tmp_path: Path) -> None:
    with stub_engine.running("--latency-s", "2") as engine:
        records, first, _ = await preempted(tmp_path, engine, "--drain", "0.5")
        repeated = engine.stats().requests - calls_of(records)
    assert first.returncode == 0
    given_back = [record for record in records if record.attempt > 1]
    assert 0 < len(given_back) <= SLOTS
    # Of each rollout, at most the one call that was in flight; the turns before come from the journal.
    assert repeated <= len(given_back)
    assert {record.attempt for record in given_back} == {2}


async def test_verifications_in_flight_are_finished(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    url = broker.start()
    model = ModelSettings(provider="scripted", name="message")
    others = (
        PoolSpec(kind="agent", names=("single_turn",), capacity=ROLLOUTS),
        PoolSpec(kind="model", names=("policy",), model=model),
    )
    rows = [b'{"responses_create_params": {"input": "say done"}, "number": %d}' % n for n in range(SLOTS)]
    try:
        async with running(SystemSpec(pools=others, nats=(url,))), connect(nats=url) as gym:
            with workers(url, tmp_path / "first.log", f"resource:{VERDICTS}") as first:
                await gym.driver.open_run(RunInfo(run="run", total=len(rows)))
                await gym.driver.publish(expand(rows, run="run", environment=VERDICTS))
                with anyio.fail_after(60 * busy()):
                    while not any("fork_server" in command_of(one) for one in first.children(True)):
                        await anyio.sleep(0.05)
                    first_done = await anext(aiter(gym.collect("run")))
                preempt(first)
                with workers(url, tmp_path / "second.log", f"resource:{VERDICTS}"):
                    records = [record async for record in gym.collect("run")]
                    (agent,) = [one for one in (await gym.status()).workers if one.kind == "agent"]
                await anyio.to_thread.run_sync(first.wait, 40)
    finally:
        broker.stop()
    assert first.returncode == 0
    assert agent.figures is not None
    assert agent.figures.total(metric_names.RETRIES) == 0
    assert {type(record.outcome) for record in (first_done, *records)} == {Completed}
    assert {record.attempt for record in records} == {1}
    assert len({record.task_index for record in records}) == len(rows)
