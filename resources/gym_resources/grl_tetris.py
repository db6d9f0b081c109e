"""Tetris on a small board: clear one line.

Each turn the model sees the board and answers with one or more of ``<action>Left</action>``, ``Right`` and
``Down``, in any case, which are applied in order. Each costs 0.1. Nothing falls by itself: a piece is settled
when it stands on something, after any action, and the next one appears in the top row. Cleared lines are
worth 10 each and end the game; so does a settled block in the top row. Actions after the end do not count. An
answer without an action changes nothing and costs nothing but the turn.

``dim_board`` is columns and rows; ``box_type`` says which pieces there are: 1 single blocks; 2 upright and
lying pairs; 3 these and squares. ``seed`` decides the pieces and where they appear.

Rows, symbols, pieces and rewards are those of NeMo Gym's environment of this name; its random numbers are
others, so of one seed the pieces are, too. Source: the game of github.com/lmgame-org/GRL (Apache-2.0); the
rows are our own.
"""

from __future__ import annotations

import random
import re
from typing import Annotated, Literal

from gym_runtime import Environment, Episode, Reply, Step, Task
from msgspec import Meta

ACTION_COST, LINE = -0.1, 10.0
ACTIONS_AT_MOST = 200
STEPS = {"left": (-1, 0), "right": (1, 0), "down": (0, 1)}
UPRIGHT, LYING = ((0, 0), (0, -1)), ((0, 0), (-1, 0))
PIECES = {
    1: (((0, 0),),),
    2: (UPRIGHT, LYING),
    3: (UPRIGHT, LYING, ((0, 0), (-1, 0), (0, -1), (-1, -1))),
}
"""The blocks of each piece from its anchor, ``(column, row)``; above the board is row -1."""
_ACTION = re.compile(r"<action>\s{0,99}(left|right|down)\s{0,99}</action>", re.IGNORECASE)
Side = Annotated[int, Meta(ge=3, le=20)]
Place = tuple[int, int]


class TetrisTask(Task):
    seed: int = 0
    dim_board: tuple[Side, Side] = (4, 4)
    box_type: Literal[1, 2, 3] = 1


class Tetris(Episode[TetrisTask]):
    async def open(self) -> None:
        self.width, self.height = self.task.dim_board
        self.draw = random.Random(self.task.seed)
        self.settled: set[Place] = set()
        self.over = self.won = False
        self.actions = 0
        self.appear()

    def appear(self) -> None:
        """The next piece, with its anchor in the top row."""
        self.piece = self.draw.choice(PIECES[self.task.box_type])
        leftmost = min(column for column, _ in self.piece)
        self.anchor = self.draw.randrange(-leftmost, self.width), 0

    async def reset(self) -> str:
        return self.drawn()

    def drawn(self) -> str:
        falling = set[Place]() if self.over else set(self.blocks(self.anchor))
        return "\n".join(
            "".join(
                "X" if (column, row) in falling else "#" if (column, row) in self.settled else "_"
                for column in range(self.width)
            )
            for row in range(self.height)
        )

    def blocks(self, anchor: Place) -> list[Place]:
        return [(anchor[0] + column, anchor[1] + row) for column, row in self.piece]

    def fits(self, anchor: Place) -> bool:
        return all(
            0 <= column < self.width and row < self.height and (column, row) not in self.settled
            for column, row in self.blocks(anchor)
        )

    async def step(self, reply: Reply) -> Step:
        actions = [found[1].lower() for found in _ACTION.finditer(reply.joined_text)][:ACTIONS_AT_MOST]
        if not actions:
            return Step(observation=f"There was no action in your answer.\n{self.drawn()}")
        reward = 0.0
        for action in actions:
            if not self.over:
                reward += ACTION_COST + LINE * self.apply(STEPS[action])
        info = {"success": self.won, "actions": self.actions}
        return Step(observation=self.drawn(), reward=reward, terminated=self.over, info=info)

    def apply(self, step: Place) -> int:
        """Move the piece if it can move so; settle it if it stands on something. Returns lines cleared."""
        self.actions += 1
        moved = self.anchor[0] + step[0], self.anchor[1] + step[1]
        if self.fits(moved):
            self.anchor = moved
        if self.fits((self.anchor[0], self.anchor[1] + 1)):
            return 0
        self.settled |= {place for place in self.blocks(self.anchor) if place[1] >= 0}
        lines = [
            row
            for row in range(self.height)
            if all((column, row) in self.settled for column in range(self.width))
        ]
        for line in lines:
            rest = [place for place in self.settled if place[1] != line]
            self.settled = {(column, row + (row < line)) for column, row in rest}
        self.won = bool(lines)
        self.over = self.won or any(row == 0 for _, row in self.settled)
        if not self.over:
            self.appear()
        return len(lines)


environment = Environment(
    resource=Tetris,
    description="Move falling pieces on a small board until a line is full (Tetris).",
    domain="games",
    data_license="Apache-2.0 (own rows)",
    max_turns=60,
    gold_reward=8.8,
)
