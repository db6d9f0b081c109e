"""Seats: the trained models of one rollout, such as the two players of a game.

Each seat has its own conversation, which its agent keeps, and sequences of tokens of its own. The pool
that serves the role of its name (of ``solver/1``: ``solver``) samples for it, with the role's sampling
settings; without such a role the policy does, so that several seats may be one policy. The first seat is
the main one: its answers are the transcript, and the reward is its own. Others' tokens are in the row's
``_gym.calls``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Raw

from gym_runtime.errors import UsageError
from gym_runtime.rollout.remote_model import Answered, RemoteModel
from gym_runtime.rollout.turn import Turn

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(/[0-9]{1,4})?", re.ASCII)


@dataclass(eq=False)
class Seat:
    """One seat of a rollout, as its agent sees it.

    Attributes:
        name: as the agent declares it.
        pool: the workers that serve its model.
    """

    name: str
    pool: str
    _model: RemoteModel
    _params: Raw
    _taken: Callable[[Seat, Callable[[], Awaitable[Answered]]], Awaitable[Turn]] = field(repr=False)
    last: int = -1

    async def respond(self, conversation: Sequence[Raw]) -> Turn:
        """Have the seat's model answer its whole conversation; it counts as a turn, and is journaled.

        The main seat's answer is appended to the transcript. What another seat says is put there by the
        agent, if the verifier or the main seat is to see it. Seats answer one after the other.

        Raises:
            GymError: as `Rollout.respond`.
        """
        return await self._taken(self, lambda: self._model.ask(self._params, conversation))


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """
    Raises:
        UsageError: they are no different names.
    """
    if not names or len({*names}) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise UsageError(
            f"seats={tuple(names)!r}: give each trained seat its own name, a word in lower case, or "
            "several of one name numbers: 'solver/1', 'solver/2'",
            stage="agent",
        )
    return tuple(names)
