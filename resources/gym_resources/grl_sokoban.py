"""Sokoban: push each box onto a target, one move a turn.

Each turn the model sees the room and answers with ``<action>Up</action>``, ``Down``, ``Left`` or ``Right``,
in any case; the first tag counts. A move costs 0.1, a box that comes onto a target adds 1, one that leaves it
takes 1, and when all boxes stand on targets the game is won and 10 are added. So one move at best is worth
10.9, and every game that is not won less than its boxes. An answer without a move changes nothing and costs
nothing but the turn.

``seed``, ``dim_room`` (rows, columns, with the walls around) and ``num_boxes`` decide the room, by a
generator of our own that plays backwards from the end, so that each room can be solved; ``room``, the lines
of a room, takes their place.

Rows, symbols and rewards are those of NeMo Gym's environment of this name, whose rooms come from the package
gym-sokoban: of one seed these are other rooms. It counts no success without all boxes, and so do we.
Source: the rules and rewards of github.com/mpSchrader/gym-sokoban (MIT), in the form of
github.com/lmgame-org/GRL (Apache-2.0); the rows are our own.
"""

from __future__ import annotations

import re
from typing import Annotated

from gym_runtime import Environment, Episode, Reply, Step, Task, TaskError
from msgspec import Meta

from gym_resources.puzzles import sokoban_rooms
from gym_resources.puzzles.sokoban_rooms import Room

STEP, PLACED, WON = -0.1, 1.0, 10.0
_ACTION = re.compile(r"<action>\s{0,99}(up|down|left|right)\s{0,99}</action>", re.IGNORECASE)
Side = Annotated[int, Meta(ge=4, le=12)]


class SokobanTask(Task):
    seed: int = 0
    dim_room: tuple[Side, Side] = (6, 6)
    num_boxes: Annotated[int, Meta(ge=1, le=6)] = 1
    room: Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=40)] = []  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.room:
            sokoban_rooms.read(self.room)

    def made(self) -> Room:
        """The room at the start.

        Raises:
            TaskError: it is too small for its boxes.
        """
        if self.room:
            return sokoban_rooms.read(self.room)
        try:
            return sokoban_rooms.made(self.seed, *self.dim_room, self.num_boxes)
        except ValueError as error:
            raise TaskError(str(error)) from error


class Sokoban(Episode[SokobanTask]):
    async def open(self) -> None:
        self.room = self.task.made()
        self.moves = 0

    async def reset(self) -> str:
        return self.room.drawn()

    async def step(self, reply: Reply) -> Step:
        found = _ACTION.search(reply.joined_text)
        if found is None:
            return Step(observation=f"There was no move in your answer.\n{self.room.drawn()}")
        before = self.room.on_target
        self.room = self.room.moved(found[1].capitalize())
        self.moves += 1
        won = self.room.on_target == len(self.room.boxes)
        reward = STEP + PLACED * (self.room.on_target - before) + WON * won
        info = {"success": won, "moves": self.moves, "boxes_on_target": self.room.on_target}
        return Step(observation=self.room.drawn(), reward=reward, terminated=won, info=info)


environment = Environment(
    resource=Sokoban,
    description="Push the boxes of a room onto its targets, move by move (Sokoban).",
    domain="games",
    data_license="Apache-2.0 (own rows)",
    max_turns=100,
    gold_reward=10.4,
)
