"""The fork's side: the answers that are there, and the first question that has none.

The same row, answers and code lead to the same questions, so everything random starts from the row.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from gym_runtime import Reply, ResourceError

from gym_resources.guests.played.fork_messages import POLICY, Asked, Given, Played

DIGEST_BYTES = 12
_encode = msgspec.json.Encoder(order="sorted").encode


class Unanswered(BaseException):
    """A question has no answer yet. That is no failure, so handlers of `Exception` let it pass."""


class Script:
    """The answers to a guest's questions, in their order.

    Args:
        given: the answers that are there.
        cut: the rollout was ended, so that the policy gives no more answers.
    """

    def __init__(self, given: Sequence[Given], *, cut: bool) -> None:
        self._given = given
        self._cut = cut
        self._asked: Asked | None = None
        self.digests: list[str] = []

    def answer(self, asked: Asked) -> Reply | None:
        """The answer to a question; None if the policy gives no more.

        Raises:
            Unanswered: the answer has not come yet.
            ResourceError: the recorded answer is another role's.
        """
        number = len(self.digests)
        if number == len(self._given) and self._cut and asked.role == POLICY:
            return None
        self.digests.append(hashlib.sha256(_encode(asked)).hexdigest()[: 2 * DIGEST_BYTES])
        if number >= len(self._given):
            self._asked = self._asked or asked
            raise Unanswered
        given = self._given[number]
        if given.role != asked.role:
            raise ResourceError(
                f"the guest asks '{asked.role}', and asked '{given.role}' at this place before: it does not "
                "play the same rollout twice"
            )
        return Reply(given.response)

    def play(self, row: bytes, guest: Callable[[], Played]) -> Played:
        """Play a rollout as far as the answers reach."""
        random.seed(row)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(int.from_bytes(hashlib.sha256(row).digest()[:4], "big"))
        home = os.environ.get("HOME", "/tmp")
        before = set(os.listdir(home))
        try:
            played = guest()
        except BaseException:
            if self._asked is None:
                raise
            played = Played(digests=[])
        finally:  # a warm process that finds its folder as it was serves the next fork, too
            for name in set(os.listdir(home)) - before:
                shutil.rmtree(os.path.join(home, name), ignore_errors=True)
        if self._asked is not None:
            return Played(digests=self.digests, asked=self._asked)
        return msgspec.structs.replace(played, digests=self.digests)


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """Those of a guest's metrics that are numbers."""
    return {name: float(value) for name, value in values.items() if isinstance(value, (bool, int, float))}
