"""Rooms of Sokoban that can be solved, made by a seed: the game is played backwards from its end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Set
from typing import NamedTuple

Place = tuple[int, int]
MOVES: dict[str, Place] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_OX√PS"
WALL_SHARE = 0.15
TRIES, BACKWARDS = 10, 300


class Room(NamedTuple):
    """What stands where; places are ``(row, column)``."""

    height: int
    width: int
    floor: frozenset[Place]
    targets: frozenset[Place]
    boxes: frozenset[Place]
    player: Place

    def drawn(self) -> str:
        """The room as text, a line for each row."""
        return "\n".join(
            "".join(self._symbol((row, column)) for column in range(self.width)) for row in range(self.height)
        )

    def _symbol(self, place: Place) -> str:
        on_target = place in self.targets
        if place == self.player:
            return PLAYER_ON_TARGET if on_target else PLAYER
        if place in self.boxes:
            return BOX_ON_TARGET if on_target else BOX
        return TARGET if on_target else FLOOR if place in self.floor else WALL

    def moved(self, move: str) -> Room:
        """The room after a move, which may push one box; the same room if the way is blocked."""
        step = MOVES[move]
        ahead = shifted(self.player, step)
        boxes = self.boxes
        if ahead in boxes:
            beyond = shifted(ahead, step)
            if beyond not in self.floor or beyond in boxes:
                return self
            boxes = boxes - {ahead} | {beyond}
        return self._replace(player=ahead, boxes=boxes) if ahead in self.floor else self

    @property
    def on_target(self) -> int:
        """How many boxes stand on targets."""
        return len(self.boxes & self.targets)

    @property
    def difficulty(self) -> tuple[int, int]:
        """How far it looks from solved: boxes that are not on targets, and how far these are from any."""
        away = self.boxes - self.targets
        far = (min(abs(row - to[0]) + abs(column - to[1]) for to in self.targets) for row, column in away)
        return len(away), sum(far)


def shifted(place: Place, step: Place) -> Place:
    return place[0] + step[0], place[1] + step[1]


def read(lines: list[str]) -> Room:
    """A room that was drawn.

    Raises:
        ValueError: there is not one player, or not a target for each box, or an unknown symbol.
    """
    cells = {(row, column): symbol for row, line in enumerate(lines) for column, symbol in enumerate(line)}
    found = {
        symbol: {place for place, one in cells.items() if one == symbol} for symbol in set(cells.values())
    }

    def of(symbols: str) -> frozenset[Place]:
        return frozenset[Place]().union(*(found.get(symbol, ()) for symbol in symbols))

    players, boxes, targets = of("PS"), of("X√"), of("O√S")
    if set(found) - set("#_OX√PS") or len(players) != 1 or not boxes or len(boxes) != len(targets):
        raise ValueError(
            "'room' has one P (or S), and as many X as O, √ counting as both; # is a wall, _ floor"
        )
    return Room(len(lines), max(map(len, lines)), of("_OX√PS"), targets, boxes, next(iter(players)))


def made(seed: int, height: int, width: int, boxes: int) -> Room:
    """The room of several that looks hardest, with as many boxes as asked for.

    The same seed makes the same room.

    Raises:
        ValueError: the room is too small, or too full of boxes, for one that can be solved.
    """
    inside = [(row, column) for row in range(1, height - 1) for column in range(1, width - 1)]
    draw = random.Random(seed)
    best: Room | None = None
    for _ in range(TRIES):
        walls = round(WALL_SHARE * len(inside)) if len(inside) > 9 else 0
        floor = frozenset(inside) - frozenset(draw.sample(inside, walls))
        if len(floor) <= 2 * boxes or not _connected(floor):
            continue
        targets = frozenset(draw.sample(sorted(floor), boxes))
        player = draw.choice(sorted(floor - targets))
        for room in _backwards(Room(height, width, floor, targets, targets, player), draw):
            if best is None or room.difficulty > best.difficulty:
                best = room
    if best is None or best.on_target == boxes:
        raise ValueError(f"no room of {height} x {width} with {boxes} boxes was found for seed {seed}")
    return best


def _backwards(room: Room, draw: random.Random) -> Iterator[Room]:
    """Rooms from which this one can be reached: the player walks, and pulls boxes that stand behind."""
    for _ in range(BACKWARDS):
        step = MOVES[draw.choice(sorted(MOVES))]
        to, behind = shifted(room.player, step), shifted(room.player, (-step[0], -step[1]))
        if to not in room.floor or to in room.boxes:
            continue
        if behind in room.boxes and draw.random() < 0.7:
            room = room._replace(player=to, boxes=room.boxes - {behind} | {room.player})
            yield room
        else:
            room = room._replace(player=to)


def _connected(floor: Set[Place]) -> bool:
    reached = [min(floor)]
    seen = set(reached)
    for place in reached:
        for step in MOVES.values():
            near = shifted(place, step)
            if near in floor and near not in seen:
                seen.add(near)
                reached.append(near)
    return len(seen) == len(floor)
