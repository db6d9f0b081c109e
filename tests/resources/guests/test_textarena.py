"""Games of TextArena: the same rewards as a direct loop with the same moves."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed, Truncated
from gym_testing.small_system import Engine, answer
from resources.guests.guest_runs import guest, made, own_rows, result, said

textarena: Any = pytest.importorskip("textarena", reason="needs pip install 'gym-runtime[textarena]'")
pytestmark = pytest.mark.anyio

GAMES = {
    "GuessTheNumber-v0": ["[5]", "[15]", "[10]"],
    "Mastermind-v0": ["[1 2 3 4]", "[4 3 2 1]"],
    "TowerOfHanoi-v0": ["[A C]", "[A B]"],
    "LightsOut-v0": ["[0 0]", "[1 1]"],
    "FrozenLake-v0": ["[right]", "[down]"],
    "2048-v0": ["[up]", "[left]"],
    "Minesweeper-v0": ["[0 0]", "[5 5]"],
    "FifteenPuzzle-v0": ["[up]", "[left]"],
    "Sudoku-v0": ["[1 1 1]", "[9 9 9]"],
    "Countdown-v0": ["[0 1 +]"],
}
TWO = {"ConnectFour-v0": (["[col 0]"], ["[col 1]"]), "KuhnPoker-v0": (["[check]"], ["[check]"])}
"""Games of two: the moves of the policy and of its opponent."""
SEEDS = range(5)
MAX_TURNS = 8
DEFAULT = ("GuessTheNumber-v0", "Mastermind-v0", "TowerOfHanoi-v0")


def direct(game: str, seed: int, *seats: list[str]) -> tuple[float, int]:
    """The first seat's reward and turns in a loop as in TextArena's manual. Last moves are repeated."""
    random.seed(seed)
    env = textarena.make(game)
    env.reset(num_players=len(seats), seed=seed)
    done, turns = False, [0] * len(seats)
    while not done and (turns[0] < MAX_TURNS or len(seats) > 1):
        seat, _ = env.get_observation()
        done, _ = env.step(seats[seat][min(turns[seat], len(seats[seat]) - 1)])
        turns[seat] += 1
    return (float(env.close()[0][0]), turns[0]) if done else (0.0, turns[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "game",
    [pytest.param(game, marks=() if game in DEFAULT else pytest.mark.soak) for game in {**GAMES, **TWO}],
)
async def test_rewards_are_those_of_a_direct_loop(game: str) -> None:
    """12 games with 5 seeds each; the quick ones of them are played without ``--soak``, too."""
    moves, others = TWO.get(game) or (GAMES[game], None)
    name = f"textarena:{game}?size={len(SEEDS)}{'&players=2' if others else ''}"
    opponent = {"opponent": Engine(*map(answer, others))} if others else {}
    async with guest(name, *map(answer, moves), **opponent) as system:
        roles = {"roles": {"opponent": "opponent"}} if others else {}
        records = await made(system, name, own_rows(name), max_turns=MAX_TURNS, **roles)
    seats = [moves, others] if others else [moves]
    expected = [direct(game, seed, *seats) for seed in SEEDS]
    assert [(record.reward, record.turns) for record in records] == expected, records[0].outcome


async def test_two_seats_and_what_the_policy_reads() -> None:
    name = "textarena:Nim-v0?players=2&size=1"
    opponent = Engine(answer("[1 4]"), answer("[2 1]"), answer("[2 4]"))
    async with guest(name, answer("[0 3]"), answer("[2 0]"), opponent=opponent) as system:
        (record,) = await made(system, name, own_rows(name), roles={"opponent": "opponent"}, max_attempts=1)
    assert record.outcome == Completed(), record.outcome
    row = result(record)
    assert row["textarena_ended"]
    assert set(row["reward_components"]) == {"seat_0", "seat_1"}
    first, _, second = [text for _, text in said(record)][:3]
    assert "Welcome to Nim, Player 0" in first
    assert "Welcome" not in second
    assert "[Player 1]" in second


async def test_a_game_that_a_limit_ends() -> None:
    name = "textarena:GuessTheNumber-v0?size=1"
    async with guest(name, answer("hm")) as system:
        (record,) = await made(system, name, own_rows(name), max_turns=1)
    assert isinstance(record.outcome, Truncated | Completed)
    assert record.reward is not None


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("Nothing-v0", "has no game"),
        ("Nim-v0", "players=1"),
        ("Nim-v0?players=2&seat=2", "seat one of"),
        ("GuessTheNumber-v0?size=0", "size is a number"),
        ("GuessTheNumber-v0?colour=1", "colour"),
        ("Wordle-v0", "word lists"),
    ],
)
def test_what_is_refused(address: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        catalogue.environment(f"textarena:{address}")
