"""Two or more trained seats that move in turn, such as the players of a game.

For step-by-step environments (`gym_runtime.Episode`): each answer is a step, and the observation that follows
is shown to the seat that moves next. Each seat has its own conversation: the row's input, the
observations that were shown to it, and its own answers. No seat sees another's words, unless the
environment tells them. The first seat moves first and is the main one (`gym_runtime.adapters.Seat`).

All seats are one policy, unless the run names another pool for one: ``--role second=PROVIDER/NAME``. It ends
as the step loop does.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from gym_runtime.adapters import Rollout

SEATS = ("first", "second")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who plays.

    Attributes:
        seats: their names, in the order in which they move; the verifier gives each its reward.
    """

    seats: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=16)] = SEATS


class Agent:
    """Seats in turn."""

    async def run(self, rollout: Rollout) -> None:
        names = rollout.options(Options).seats
        rules = list(rollout.input)
        await rollout.reset()
        seats = rollout.take_seats(*names)
        # The first observation is for the seat that begins.
        shown = [list(rollout.input), *(list(rules) for _ in seats[1:])]
        place = 0
        while True:
            turn = await seats[place].respond(shown[place])
            if turn.incomplete is not None:
                return rollout.truncate(turn.incomplete)
            shown[place] += turn.response.output
            step = await rollout.step(turn)
            if step.truncated:
                return rollout.truncate("environment")
            if step.terminated:
                return None
            if rollout.max_turns is not None and rollout.turns >= rollout.max_turns:
                return rollout.truncate("max_turns")
            place = (place + 1) % len(seats)
            shown[place] += step.items
