"""Nim for two trained seats: who takes the last object wins.

There are some heaps. The seats ``first`` and ``second`` move in turn: a move takes one or more objects from
one heap, ``<take>HEAP COUNT</take>``, heaps numbered from 1; of several tags the first counts. Who takes the
last object has the reward 1, the other 0. A seat that makes no move, or one that the heaps do not allow,
loses. In a game that a limit ends both have 0. The reward of the row is that of ``first``.

Who begins wins if both play well, unless the exclusive or of the heaps is 0. So heaps decide who should
win, and each seat needs a baseline of its own (`gym_trainers.SeatBaselines`).
Source: C. L. Bouton, "Nim, a game with a complete mathematical theory", 1901; the rows are our own.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from gym_runtime import Environment, Episode, Reply, Role, Step, Task, Verdict

SEATS: tuple[Literal["first"], Literal["second"]] = ("first", "second")
Winner = Literal["first", "second"] | None
_MOVE = re.compile(r"<take>\s{0,9}(\d{1,3})[\s,]{1,9}(\d{1,3})\s{0,9}</take>", re.ASCII | re.IGNORECASE)


class NimTask(Task):
    heaps: Annotated[
        list[Annotated[int, msgspec.Meta(ge=1, le=99)]], msgspec.Meta(min_length=1, max_length=9)
    ]


class Nim(Episode[NimTask]):
    async def open(self) -> None:
        self.heaps = list(self.task.heaps)
        self.moves = 0
        self.winner: Winner = None
        self.illegal = False

    async def reset(self) -> str:
        return self.board()

    def board(self) -> str:
        heaps = ", ".join(f"heap {number}: {left}" for number, left in enumerate(self.heaps, 1))
        return f"{heaps}. Your move."

    async def step(self, reply: Reply) -> Step:
        mover, other = SEATS[self.moves % 2], SEATS[(self.moves + 1) % 2]
        self.moves += 1
        self.illegal = not self.take(reply.joined_text)
        if self.illegal:
            self.winner = other
            return Step(observation=f"{mover} made no legal move and loses.", terminated=True)
        if not any(self.heaps):
            self.winner = mover
            return Step(observation=f"{mover} took the last object and wins.", terminated=True)
        return Step(observation=self.board())

    def take(self, said: str) -> bool:
        """Make the move in a text; False if it has none, or the heaps do not allow it."""
        if (found := _MOVE.search(said)) is None:
            return False
        heap, count = int(found[1]) - 1, int(found[2])
        if not 0 <= heap < len(self.heaps) or not 1 <= count <= self.heaps[heap]:
            return False
        self.heaps[heap] -= count
        return True

    async def verify(self, reply: Reply) -> Verdict:
        rewards = {seat: float(seat == self.winner) for seat in SEATS}
        fields = {"winner": self.winner, "moves": self.moves, "illegal": self.illegal}
        return Verdict(rewards[SEATS[0]], fields=fields, rewards=rewards)


environment = Environment(
    resource=Nim,
    description="Nim for two trained seats, which may be one policy: who takes the last object wins.",
    domain="games",
    agent="self_play",
    roles=(Role(name="second", optional=True),),
    data_license="Apache-2.0 (own rows)",
    max_turns=64,
)
