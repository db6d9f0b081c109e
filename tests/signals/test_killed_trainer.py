"""A trainer is killed again and again; the next one goes on with all that was stored, exactly."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime.client import make_pools
from gym_runtime.system.spec import SystemSpec
from gym_runtime.system.system import running
from gym_runtime.workers.adapter import ModelSettings
from gym_signal import Posterior, Seen
from signals.killed_trainer import TASKS, beliefs
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("killed_trainer.py")
GUESS = '''"""Every reward is a throw of dice; task n is won with probability n / 30."""

import random

from gym_runtime import Environment, Reply, Task, Verdict


class GuessTask(Task):
    number: int


async def verify(task: GuessTask, reply: Reply) -> Verdict:
    return Verdict(float(random.random() * 30 < task.number))


environment = Environment(resource=verify, description="Dice.")
'''


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # real time


def started(url: str, log: Path, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(TRAINER), url, str(log), json.dumps(options)])


def lives(log: Path) -> list[list[dict[str, Any]]]:
    """What each life of the trainer noted."""
    found: list[list[dict[str, Any]]] = []
    for line in log.read_bytes().split(b"\n")[:-1]:
        note = json.loads(line)
        if "loaded" in note:
            found.append([])
        found[-1].append(note)
    return found


@pytest.mark.parametrize(
    ("kills", "options"),
    [
        (3, {}),
        pytest.param(50, {}, marks=pytest.mark.soak),
        pytest.param(8, {"partial": True}, marks=pytest.mark.soak),
        pytest.param(8, {"waves": [2, 2]}, marks=pytest.mark.soak),
        pytest.param(8, {"staleness": 1}, marks=pytest.mark.soak),
    ],
)
async def test_the_curriculum_is_exact_after_kills(
    kills: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guess.py").write_text(GUESS)
    monkeypatch.chdir(tmp_path)
    log, chance = tmp_path / "log", random.Random(kills)
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(["guess"], model, workers=1, concurrency=64)
    async with running(SystemSpec(pools=tuple(pools))) as system:
        for life in range(kills + 1):
            trainer = started(system.url, log, options)
            try:
                with anyio.fail_after(60 * busy()):
                    while not log.exists() or len(lives(log)) <= life or "batch" not in str(lives(log)[-1]):
                        assert trainer.poll() is None
                        await anyio.sleep(0.02)
                await anyio.sleep(chance.random() * 0.5)
            finally:
                trainer.kill()
                trainer.wait()
    told = lives(log)
    assert len(told) == kills + 1
    known, batches = list[Seen](), 0
    for notes, following in itertools.pairwise(told):
        seen = [Seen(**note["seen"]) for note in notes if "seen" in note]
        batches += sum("batch" in note for note in notes)
        certain = max((note["stored"] for note in notes if "stored" in note), default=0)
        # What was being stored when it was killed is there or not; all before is there.
        fits = [
            count
            for count in range(len(seen) + 1)
            if replayed([*known, *seen[:count]]) == pytest.approx(following[0]["loaded"])
        ]
        assert fits, f"what was loaded is no part of what was seen ({len(seen)} groups)"
        assert max(fits) >= certain, (fits, certain, len(seen))
        known += seen[: max(fits)]
    assert batches >= kills
    assert len(known) > 4 * kills


def replayed(seen: list[Seen]) -> list[float]:
    posterior = Posterior(TASKS, 4)
    for one in seen:
        posterior.observe(one)
    return beliefs(posterior)
