"""Groups with signal from a real engine on the CPU: llama.cpp's, with SmolLM2-135M."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime import connect
from gym_signal import Bet, signal_batches
from installed import needs_built_in_model

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(400)]

LETTERS = '''"""Rows are won always, never, or by whether the answer has an even number of letters."""

from gym_runtime import Environment, Reply, Task, Verdict


class LetterTask(Task):
    wins: float


async def verify(task: LetterTask, reply: Reply) -> Verdict:
    won = float(len(reply.text) % 2 == 0) if task.wins == 0.5 else task.wins
    return Verdict(won, fields={"wins": task.wins})


environment = Environment(resource=verify, agent="single_turn", description="Letters.")
'''
WANT, REPEATS = 1, 4


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # real time


@pytest.mark.parametrize(
    "options",
    [
        {"curriculum": "posterior", "partial": True},
        {"curriculum": "uniform", "waves": (2, 2), "bet": Bet(below=1.0, keep=0.5), "staleness": 1},
    ],
    ids=["carried over", "stopped and paced"],
)
async def test_groups_with_signal_come_from_a_real_engine(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_built_in_model()
    (tmp_path / "letters.py").write_text(LETTERS)
    monkeypatch.chdir(tmp_path)
    rows = [
        {"responses_create_params": {"input": f"Write about {n}."}, "wins": [0.5, 0, 1, 0.5][n % 4]}
        for n in range(12)
    ]
    async with (
        connect(model="embedded/smollm2-135m", environments=["letters"], concurrency=16) as gym,
        signal_batches(
            gym,
            rows,
            want=WANT,
            repeats=REPEATS,
            environment="letters",
            max_output_tokens=8,
            in_flight=4,
            **options,
        ) as batches,
    ):
        for _ in range(3):
            for group in await batches.next():
                assert set(group.rewards) == {0.0, 1.0}
                assert not group.failures
                found = [msgspec.json.decode(one.row) for one in group.rollouts]
                assert {row["wins"] for row in found} == {0.5}
        useful = batches.useful
        print(options, useful)
    assert useful.useful > 0
    assert useful.failed == 0
    assert useful.flat + useful.stopped > 0
    assert (useful.stopped > 0) == ("waves" in options)
