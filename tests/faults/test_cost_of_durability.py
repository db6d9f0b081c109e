"""What it costs in processor time that rollouts can continue elsewhere: journal and saved files, on and off.

No kill: the same rollouts in the same system, one batch with ``durability="turn"``, one with ``"result"``, in
turn. A control group counts the broker, all workers, their containers and programs, without this process,
which has the client and the scripted engine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.test_killed_containers import imaged
from faults.test_killed_programs import Loop, boxed, engine, installed
from gym_runtime import connect
from gym_runtime.client import make_pools
from gym_runtime.messages.outcomes import Completed
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.checks.cpu_meter import cpu_meter

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.soak, pytest.mark.anyio]

MOST_S = 0.01
"""Of processor time a turn: a twentieth of a turn that costs 200 ms."""


@contextmanager
def looped(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Generator[Loop]:
    if name == "podman":
        with imaged(monkeypatch, folder) as loop:
            yield loop
    else:
        yield boxed() if name == "boxed" else installed(name)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["boxed", "podman", "codex", "claude"])
async def test_what_durability_costs(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``GYM_TEST_ROLLOUTS`` says how many rollouts a batch has, ``GYM_TEST_PAIRS`` how many pairs."""
    with looped(name, monkeypatch, tmp_path) as found:
        await _costs(name, found._replace(turns=20), monkeypatch, capsys)


async def _costs(
    name: str, loop: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count, pairs = (
        int(os.environ.get(f"GYM_TEST_{one}", least)) for one, least in (("ROLLOUTS", 8), ("PAIRS", 3))
    )
    monkeypatch.setenv("GYM_HARNESS", json.dumps(loop.program))
    used: dict[str, list[float]] = {"turn": [], "result": []}
    with cpu_meter() as meter:
        async with engine(loop) as scripted:
            model = ModelSettings(provider="openai", name="m", urls=(scripted.url,), api="responses")
            agents = ("black_box",) if loop.program else ()
            pools = make_pools([loop.environment], model, agents=agents, workers=2, concurrency=8)
            async with running(SystemSpec(pools=pools)) as system, connect(system.url) as gym:

                async def batch_s(durability: str, size: int) -> float:
                    before = meter.others_ns()
                    settings = dataclasses.replace(loop.settings, durability=durability)
                    rows = gym.rollouts(loop.rows(size), settings, environment=loop.environment)
                    records = [record async for record in rows]
                    assert [one.outcome for one in records] == [Completed()] * size
                    return (meter.others_ns() - before) / 1e9 / size

                for durability in used:
                    await batch_s(durability, 4)  # what each worker does once
                for number in range(pairs):
                    for durability in list(used)[:: -1 if number % 2 else 1]:
                        used[durability].append(await batch_s(durability, count))
    pairs_s = zip(used["turn"], used["result"], strict=True)
    turn_s = statistics.median(on - off for on, off in pairs_s) / (loop.turns + 2)
    shares = [on / off - 1 for on, off in zip(used["turn"], used["result"], strict=True)]
    with capsys.disabled():
        told = ", ".join(
            f"{off:.2f} -> {on:.2f}" for on, off in zip(used["turn"], used["result"], strict=True)
        )
        print(
            f"\n{name}, {count} rollouts of {loop.turns + 2} turns, counted by {meter.counted_by}: "
            f"{told} s of processor time a rollout; {statistics.median(shares):+.1%} in the median pair, "
            f"{1000 * turn_s:.1f} ms a turn"
        )
    assert turn_s <= MOST_S
