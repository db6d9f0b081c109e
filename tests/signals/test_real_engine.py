"""Groups with signal from a real engine on the CPU: llama.cpp's, with SmolLM2-135M."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_models.embedded import fetch_weights
from gym_runtime import UsageError, connect
from gym_signal import Bet, signal_batches

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.anyio, pytest.mark.timeout(400)]

# The engine's grammar makes each turn a call; which coin it takes is the model's choice.
COINS = '''"""Rows are won always, never, or by the last coin that the model took."""

from typing import Literal

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class CoinTask(Task):
    wins: float


class Coins(Session[CoinTask]):
    last = ""

    @tool
    def take(self, coin: Literal["gold", "silver"]) -> str:
        """Take a coin."""
        self.last = coin
        return f"You took the {coin} coin."

    async def verify(self, reply: Reply) -> Verdict:
        wins = self.task.wins
        return Verdict(float(self.last == "gold") if wins == 0.5 else wins, fields={"wins": wins})


environment = Environment(resource=Coins, description="Coins.")
'''
TURNS, WANT, REPEATS = 2, 1, 2


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # real time


@pytest.mark.parametrize(
    "options",
    [
        {"curriculum": "posterior", "partial": True},
        {"curriculum": "uniform", "waves": (1, 1), "bet": Bet(below=1.0, keep=0.5), "staleness": 1},
    ],
    ids=["parked", "stopped and paced"],
)
async def test_groups_with_signal_come_from_a_real_engine(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    try:
        fetch_weights("smollm2-135m", lambda done, total: None)
    except UsageError as error:
        pytest.skip(f"no weights: {error}")
    (tmp_path / "coins.py").write_text(COINS)
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "responses_create_params": {
                "input": f"Gold or silver? ({n})",
                "tool_choice": "required",
            },
            "wins": [0.5, 0, 1, 0.5][n % 4],
        }
        for n in range(12)
    ]
    resumed = 0
    async with (
        connect(model="embedded/smollm2-135m", environments=["coins"], concurrency=16) as gym,
        signal_batches(
            gym,
            rows,
            want=WANT,
            repeats=REPEATS,
            environment="coins",
            max_turns=TURNS,
            max_output_tokens=24,
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
                resumed += sum(row["_gym"].get("resumed_turns", 0) > 0 for row in found)
        useful = batches.useful
        print(options, useful)
    assert useful.useful > 0
    assert useful.failed == 0
    assert useful.flat + useful.stopped > 0
    assert (useful.stopped > 0) == ("waves" in options)
    if "partial" in options:
        assert resumed, "some were carried over from one batch to the next"
