"""A schedule of faults: a pure function of its seed, so that a failing one is played again by its number."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

ENVIRONMENTS = ("tally", "quest", "once", "weigh")
ROLLOUTS = 160
SHORT_S = (0.3, 1.5)
"""Below the lease of a worker and the wait of a delivery."""
LONG_S = (7.0, 9.0)
"""Beyond both."""

Action = Literal["kill", "freeze", "cut", "broker", "double", "client"]
Kind = Literal["agent", "resource", "model"]


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, when so many rollouts are on the disk.

    ``kill`` (SIGKILL) and ``freeze`` (SIGSTOP, and SIGCONT after ``lasts_s``) hit the ``number``-th worker of
    a ``kind``; ``cut`` breaks all connections through the ``number``-th proxy for ``lasts_s``; ``broker``
    kills the broker, which is back after ``lasts_s``; ``double`` publishes tasks a second time; ``client``
    kills ``gym-runtime run``, which is then started again with ``--resume``.
    """

    at_rows: int
    action: Action
    kind: Kind = "agent"
    number: int = 0
    lasts_s: float = 0.0


class Schedule(msgspec.Struct, frozen=True):
    """Two to five injections in the order in which they come."""

    seed: int
    injections: list[Injection]

    @classmethod
    def of(cls, seed: int) -> Schedule:
        dice = random.Random(seed)
        injections = [_drawn(dice) for _ in range(dice.randint(2, 5))]
        return cls(seed, sorted(injections, key=lambda injection: injection.at_rows))


def _drawn(dice: random.Random) -> Injection:
    action: Action = dice.choices(
        ("kill", "freeze", "cut", "broker", "double", "client"), weights=(6, 4, 3, 2, 2, 2)
    )[0]
    lasts_s = dice.uniform(*SHORT_S)
    if action in ("freeze", "cut") and dice.random() < 0.4:
        lasts_s = dice.uniform(*LONG_S)
    return Injection(
        at_rows=dice.randrange(5, ROLLOUTS * 3 // 4),
        action=action,
        kind=dice.choice(("agent", "resource", "model")),
        number=dice.randrange(12),
        lasts_s=round(lasts_s, 2),
    )
