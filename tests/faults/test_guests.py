"""Guests keep what every environment here has: workers are killed, and each rollout is there once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from resources.guests.openenv_stub import TEXT, Stub, served
from running import runs
from stubs import stub_engine
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(180)]

ROLLOUTS = 40
RESUMED = 16
OWN = Path(__file__).parents[1] / "resources" / "guests" / "own"
GUESS = f"skyrl-gym:{OWN / 'guess.py'}:Guess?max_turns=3"
_PIDS = re.compile(r"NSpid:(.*)")
SKY_ROW = {
    "responses_create_params": {"input": []},
    "prompt": [],
    "skyrl_gym": {"reward_spec": {"ground_truth": "7"}},
}


async def killed_run(name: str, rows: list[dict[str, Any]]) -> list[RolloutRecord]:
    """A run in a system of two workers of each kind; a resource and an agent worker are killed."""
    numbered = [{**row, "number": number} for number, row in enumerate(rows)]
    model = ModelSettings(provider="scripted", name="echo", options={"latency_s": 0.1})
    pools = make_pools([name], model, workers=2, concurrency=16)
    records: list[RolloutRecord] = []
    async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:
        async for record in gym.rollouts(numbered, environment=name):
            records.append(record)
            kind = {10: "resource", 25: "agent"}.get(len(records))
            if kind is not None:
                os.kill(
                    next(event.pid for event in system.workers.values() if event.kind == kind), signal.SIGKILL
                )
    catalogue._guests.clear()
    return records


def once(records: list[RolloutRecord]) -> None:
    seen = Counter((record.task_index, record.rollout_index) for record in records)
    assert len(seen) == ROLLOUTS
    assert set(seen.values()) == {1}
    failed = [record.outcome for record in records if not isinstance(record.outcome, Completed)]
    assert not failed, failed[:3]
    assert all(record.reward is not None for record in records)


@pytest.mark.soak
async def test_skyrl_gym() -> None:
    pytest.importorskip("skyrl_gym", reason="needs pip install 'gym-runtime[skyrl-gym]'")
    records = await killed_run(GUESS, [SKY_ROW] * ROLLOUTS)
    once(records)
    assert {round(record.reward or 0.0, 6) for record in records} == {-0.3}


async def test_openenv() -> None:
    async with served(Stub(TEXT, steps=3)) as stub:
        rows = [{"responses_create_params": {"input": []}, "reset": {"seed": n}} for n in range(ROLLOUTS)]
        records = await killed_run(f"openenv:{stub.url}", rows)
    once(records)


@pytest.mark.soak
async def test_reasoning_gym() -> None:
    pytest.importorskip("reasoning_gym", reason="needs pip install 'gym-runtime[reasoning-gym]'")
    name = f"reasoning-gym:spell_backward?size={ROLLOUTS}"
    generate = catalogue.environment(name).definition.generate
    assert generate is not None
    once(await killed_run(name, list(generate(None, 0))))


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_verifiers() -> None:
    pytest.importorskip("verifiers.v1", reason="needs verifiers 0.4: pip install 'gym-runtime[verifiers]'")
    name = f"verifiers:{OWN / 'sums.py'}?rows={ROLLOUTS}"
    generate = catalogue.environment(name).definition.generate
    assert generate is not None
    once(await killed_run(name, list(generate(None, 0))))


def kept(worker: int) -> list[psutil.Process]:
    """The processes of a resource worker's rollouts: in process namespaces within that of its template."""
    try:
        found = psutil.Process(worker).children(recursive=True)
        depths = {
            one: len(_PIDS.findall(Path(f"/proc/{one.pid}/status").read_text())[0].split()) for one in found
        }
    except (psutil.NoSuchProcess, OSError):
        return kept(worker) if psutil.pid_exists(worker) else []
    own = len(_PIDS.findall(Path("/proc/self/status").read_text())[0].split())
    return [one for one, depth in depths.items() if depth > own + 1]


@pytest.mark.soak
@pytest.mark.timeout(560)
@pytest.mark.parametrize("kind", ["resource", "agent"])
async def test_no_process_of_inspect_is_left_after_a_kill(kind: str) -> None:
    """A worker is killed while rollouts wait for the model: no process stays, and each rollout is made."""
    pytest.importorskip("inspect_ai", reason="needs pip install 'gym-runtime[inspect]'")
    name = f"inspect:{OWN / 'inspect_tasks.py'}@sums"
    generate = catalogue.environment(name).definition.generate
    assert generate is not None
    rows = [{**row, "number": n} for n in (0, 1) for row in generate(None, 0)]
    model = ModelSettings(provider="scripted", name="echo", options={"latency_s": 8})
    pools = make_pools([name], model, workers=2, concurrency=8)
    records: list[RolloutRecord] = []
    async with running(SystemSpec(pools=pools)) as system, connect(nats=system.url) as gym:

        def workers(kind: str) -> list[int]:
            return [event.pid for event in system.workers.values() if event.kind == kind]

        async def collect() -> None:
            async for record in gym.rollouts(rows, environment=name):
                records.append(record)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect)
            while sum(len(kept(worker)) for worker in workers("resource")) < 6:
                await anyio.sleep(0.05)
            victim = max(workers(kind), key=lambda worker: len(kept(worker)))
            theirs = [*kept(victim)]
            os.kill(victim, signal.SIGKILL)
            began_s = anyio.current_time()
            with anyio.fail_after(5 * busy()):
                while any(map(runs, theirs)):
                    await anyio.sleep(0.02)
            print(f"{len(theirs)} processes ended {anyio.current_time() - began_s:.2f} s after the kill")
        assert bool(theirs) == (kind == "resource")
        with anyio.fail_after(10 * busy()):
            while any(map(kept, workers("resource"))):
                await anyio.sleep(0.05)
    catalogue._guests.clear()
    assert {record.task_index for record in records} == set(range(len(rows)))
    assert len(records) == len(rows)
    assert [record.ending for record in records if record.reward != 0.0] == []


async def test_a_run_that_is_killed_is_resumed_with_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("skyrl_gym", reason="needs pip install 'gym-runtime[skyrl-gym]'")
    (tmp_path / "rows.jsonl").write_bytes(
        b"".join(
            msgspec.json.encode({"prompt": [], "reward_spec": {"ground_truth": str(number)}}) + b"\n"
            for number in range(RESUMED)
        )
    )
    environment = {name: value for name, value in os.environ.items() if name != "GYM_NATS_URL"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    with stub_engine.running("--latency-s", "0.2") as engine:

        def command(*more: str) -> subprocess.Popen[bytes]:
            arguments = [
                *(sys.executable, "-m", "gym_runtime.cli.main", "run", f"{GUESS}&data=rows.jsonl"),
                *("--model", "openai/stub", "--model-url", engine.url, "--concurrency", "4"),
                *("--output", "out.jsonl", "--state-dir", str(tmp_path / "state"), *more),
            ]
            return subprocess.Popen(arguments, env=environment, cwd=tmp_path)

        def lines() -> list[dict[str, Any]]:
            file = tmp_path / "out.jsonl"
            found = file.read_bytes().splitlines(keepends=True) if file.exists() else []
            return [msgspec.json.decode(line) for line in found if line.endswith(b"\n")]

        first = command()
        with anyio.fail_after(90 * busy()):
            while len(lines()) < 5:
                assert first.poll() is None
                await anyio.sleep(0.05)
        family = psutil.Process(first.pid).children(recursive=True)
        first.kill()
        await anyio.to_thread.run_sync(first.wait)
        assert len(lines()) < RESUMED
        while any(map(runs, family)):  # the workers and the broker end by themselves
            await anyio.sleep(0.05)
        second = command("--resume")
        assert await anyio.to_thread.run_sync(second.wait) == 0
        made = Counter(row["_ng_task_index"] for row in lines())
        assert made == Counter(range(RESUMED))
