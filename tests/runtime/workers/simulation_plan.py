"""What a seed of the simulation stands for: rollouts, chances of messages, faults of workers and clients."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
from gym_testing.memory import Chances
from gym_testing.memory.faults import Kind
from runtime.workers.sample_environments import AGENTS, SIZE

Victim = Literal["agent", "resource", "model", "client"]
Action = Literal["kill", "stop", "cut", "freeze"]

MESSAGES: frozenset[Kind] = frozenset({"signal", "request", "answer", "delivery", "ack", "beat"})
LOSABLE: frozenset[Kind] = frozenset({"signal", "delivery", "ack", "beat"})
CHANCES = (
    Chances(),
    Chances(drop=0.1, kinds=LOSABLE),
    Chances(drop=0.01),
    Chances(delay=0.3, kinds=MESSAGES),
    Chances(double=0.3, kinds=MESSAGES),
    Chances(cut=0.02, kinds=MESSAGES, lasts_s=(0.1, 3.0)),
    Chances(freeze=0.01, kinds=MESSAGES, lasts_s=(0.5, 12.0)),
    Chances(drop=0.002, delay=0.1, double=0.1, cut=0.01, freeze=0.005),
)


class Injection(msgspec.Struct, frozen=True):
    """A fault of a worker or the client, ``at_s`` after the start.

    A cut or a freeze ends after ``lasts_s``; a killed or stopped worker is replaced then.
    """

    at_s: float
    action: Action
    victim: Victim
    number: int
    lasts_s: float


class Plan(msgspec.Struct, frozen=True):
    """What a seed stands for.

    Attributes:
        rollouts: each one's environment.
        twice: those that are published twice.
        groups: how many tasks come after these whose rollouts get their rewards together.
        hosted: agent workers host the models, and the environments that can be rebuilt.
    """

    seed: int
    rollouts: list[str]
    twice: list[int]
    chances: Chances
    injections: list[Injection]
    groups: int = 0
    hosted: bool = False

    @property
    def total(self) -> int:
        """Rollouts of all kinds."""
        return len(self.rollouts) + self.groups * SIZE

    @classmethod
    def of(cls, seed: int) -> Plan:
        dice = random.Random(seed)
        rollouts = [dice.choice(sorted(AGENTS)) for _ in range(dice.randint(2, 4))]
        twice = [index for index in range(len(rollouts)) if dice.random() < 0.2]
        injections = [_drawn(dice) for _ in range(dice.randint(0, 4))]
        chances = dice.choice(CHANCES)
        return cls(seed, rollouts, twice, chances, injections, dice.randint(0, 2), hosted=seed % 2 == 1)


def _drawn(dice: random.Random) -> Injection:
    victim: Victim = dice.choice(("agent", "resource", "model", "client"))
    action: Action = "kill" if victim == "client" else dice.choice(("kill", "stop", "cut", "freeze"))
    lasts_s = dice.choice((dice.uniform(0.1, 3.0), dice.uniform(5.0, 12.0)))
    return Injection(dice.uniform(0.0, 3.0), action, victim, dice.randint(1, 2), lasts_s)
