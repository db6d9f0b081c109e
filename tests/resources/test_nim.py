"""Nim: what a move is, and who wins."""

from __future__ import annotations

import time

import pytest
from gym_resources.nim import SEATS, Nim
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from resources.judging import row
from tables import table

pytestmark = pytest.mark.anyio
RESOURCE = catalogue.environment("nim").resource


async def play(heaps: list[int], *moves: str) -> tuple[list[int], dict[str, float], bool]:
    """The heaps that are left, the rewards, and whether the game is over."""
    over = False
    async with session_of(RESOURCE, row(heaps=heaps)) as session:
        assert isinstance(session, Nim)
        for move in moves:
            assert not over
            over = (await RESOURCE.step(session, Reply.of(move).raw)).terminated
        verdict = await RESOURCE.verify(session, Reply.of().raw)
        assert verdict.reward == verdict.rewards[SEATS[0]]
        return session.heaps, verdict.rewards, over


@table(
    ("heaps", "moves", "left", "winner"),
    [
        ([1], ["<take>1 1</take>"], [0], "first"),
        ([2], ["<take>1 1</take>", "I think. <TAKE> 1, 1 </TAKE> <take>1 9</take>"], [0], "second"),
        ([2, 1], ["<take>1 2</take>"], [0, 1], None),
        ([2], ["<take>1 3</take>"], [2], "second"),
        ([2], ["<take>1 0</take>"], [2], "second"),
        ([2], ["<take>0 1</take>"], [2], "second"),
        ([2], ["<take>2 1</take>"], [2], "second"),
        ([2], ["<take>1 -1</take>"], [2], "second"),
        ([2], ["<take>1 1</take>", ""], [1], "first"),
        ([2], [], [2], None),
    ],
)
async def test_moves(heaps: list[int], moves: list[str], left: list[int], winner: str | None) -> None:
    found, rewards, over = await play(heaps, *moves)
    assert found == left
    assert rewards == {seat: float(seat == winner) for seat in SEATS}
    assert over is (winner is not None)


async def test_no_answer_is_read_for_long() -> None:
    began_s = time.process_time()
    for said in ("<take>" * 200_000, "<take>1 " + " " * 1_000_000, "<take>" + "1" * 1_000_000):
        await play([2], said)
    assert time.process_time() - began_s < 5
