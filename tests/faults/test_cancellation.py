"""Whoever stops what: within two seconds the engine is at rest, sandboxes are gone, sessions are closed.

A real system with an engine that would answer in a minute, and clients in their own processes, which are
interrupted, killed, or cancel by the command line.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import psutil
import pytest
from gym_runtime import connect
from gym_runtime.client import Client, make_pools
from gym_runtime.messages.outcomes import Cancelled
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import System, running
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]

WITHIN_S = 8.0
"""2 s are promised; a busy machine takes longer."""
ROLLOUTS = 8
COUNTER = "example_session_state_mgmt"
CLIENT = f"""
import asyncio, json, sys, gym_runtime
ROW = {{"responses_create_params": {{"input": "go"}}, "initial_count": 0, "expected_count": 1,
       "expected_result": "1"}}
async def main():
    async with gym_runtime.connect(nats=sys.argv[1]) as gym:
        async for record in gym.rollouts([ROW], environment=sys.argv[2], repeats={ROLLOUTS}):
            print(record.rollout_id, flush=True)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
"""
SPIN = {
    "type": "function_call",
    "call_id": "1",
    "name": "execute_python",
    "arguments": json.dumps({"code": "while True: pass"}),
}


async def soon(condition: Callable[[], object], limit_s: float = 20.0) -> float:
    """How long it takes until a condition holds, in seconds; on a busy machine, of those that it had."""
    start_s = time.monotonic()
    with anyio.fail_after(limit_s * busy()):
        while not condition():
            await anyio.sleep(0.02)
    return (time.monotonic() - start_s) / busy()


@asynccontextmanager
async def system(environment: str, model: ModelSettings) -> AsyncGenerator[tuple[System, Client]]:
    pools = make_pools([environment], model, concurrency=ROLLOUTS)
    async with running(SystemSpec(pools=pools)) as started, connect(nats=started.url) as gym:
        yield started, gym


def client(url: str, environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CLIENT, url, environment])


async def sessions_are_closed(gym: Client) -> None:
    """A worker says so with its next renewal."""
    with anyio.fail_after((WITHIN_S + 2) * busy()):
        while any(worker.in_use for worker in await gym.workers() if worker.kind == "resource"):
            await anyio.sleep(0.05)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL]
)
async def test_a_client_that_ends_leaves_no_call_at_the_engine(number: signal.Signals) -> None:
    with stub_engine.running("--latency-s", "60") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        async with system(COUNTER, model) as (started, gym):
            process = client(started.url, COUNTER)
            try:
                await soon(lambda: engine.stats().in_flight == ROLLOUTS)
                process.send_signal(number)
                assert await soon(lambda: engine.stats().in_flight == 0) < WITHIN_S
            finally:
                process.kill()
                process.wait()
            await sessions_are_closed(gym)


@pytest.mark.parametrize(("parts", "left"), [((), 0), ((0,), 0), ((0, 3), ROLLOUTS - 1)])
async def test_a_cancelled_run_group_or_rollout_is_aborted_at_the_engine(
    parts: tuple[int, ...], left: int
) -> None:
    with stub_engine.running("--latency-s", "60") as engine:
        model = ModelSettings(provider="openai", name="stub", urls=(engine.url,))
        async with system(COUNTER, model) as (_, gym), anyio.create_task_group() as tasks:
            cancelled: list[str] = []

            async def collect() -> None:
                row = {"responses_create_params": {"input": "go"}, "initial_count": 0, "expected_count": 1}
                async for record in gym.rollouts([row], environment=COUNTER, repeats=ROLLOUTS):
                    assert record.outcome == Cancelled()
                    cancelled.append(record.rollout_id)

            tasks.start_soon(collect)
            await soon(lambda: engine.stats().in_flight == ROLLOUTS)
            (run,) = await gym.runs()
            await gym.cancel(run.run, *parts)
            assert await soon(lambda: engine.stats().in_flight == left) < WITHIN_S
            await soon(lambda: len(cancelled) == ROLLOUTS - left)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.soak), signal.SIGKILL])
async def test_a_client_that_ends_leaves_no_sandbox(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "spin.jsonl"
    script.write_text(json.dumps([SPIN]) + "\n")
    model = ModelSettings(provider="scripted", name=str(script))
    async with system("math_with_code", model) as (started, gym):
        worker = next(event.pid for event in started.workers.values() if event.kind == "resource")

        def sandboxes() -> int:
            """First processes of namespaces that a template has made: one for each sandbox."""
            found = 0
            for child in psutil.Process(worker).children(recursive=True):
                with suppress(FileNotFoundError, ProcessLookupError):
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    numbers = re.findall(r"^NSpid:(.*)$", status, re.MULTILINE)[0].split()
                    found += len(numbers) > 2 and numbers[-1] == "1"
            return found

        process = client(started.url, "math_with_code")
        try:
            await soon(lambda: sandboxes() == ROLLOUTS)
            process.send_signal(number)
            assert await soon(lambda: sandboxes() == 0) < WITHIN_S
        finally:
            process.kill()
            process.wait()
        await sessions_are_closed(gym)
