"""The policy with which a simulation injects faults: what happens to a message on its way."""

from __future__ import annotations

import random
from typing import Literal, Protocol

import msgspec

Kind = Literal["signal", "request", "answer", "delivery", "ack", "beat", "store"]
"""``delivery``: a task on its way to a worker; ``ack``: an ack or release on its way back; ``beat``: a
delivery is kept alive; ``store``: anything that asks the broker to keep, read or delete."""


class Passing(msgspec.Struct, frozen=True):
    """A message on its way. ``sender`` and ``receiver`` are connections' names; the broker's is empty."""

    kind: Kind
    subject: str
    sender: str
    receiver: str


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's decision about one message.

    Attributes:
        drop: the message is lost. A ``store`` may have been done or not; its caller gets a `BrokerError`.
        double: it arrives twice. Signals and deliveries never do: the contract forbids it.
        delay_s: how much later it arrives. Other messages may overtake it, except signals on one subject.
        cut, freeze: the names of connections that are cut or frozen before the message passes.
        lasts_s: how long they stay cut or frozen.
    """

    drop: bool = False
    double: bool = False
    delay_s: float = 0.0
    cut: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    lasts_s: float = 0.0


UNHARMED = Fate()


class Faults(Protocol):
    """A policy. It takes random numbers only from ``dice``, the broker's seeded generator."""

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        """What happens to one message; asked once for each of its receivers."""
        ...


class NoFaults(msgspec.Struct, frozen=True):
    """Everything arrives at once."""

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        return UNHARMED


NO_FAULTS = NoFaults()


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """Faults by chance, each with its probability per message.

    ``cut`` and ``freeze`` apply to the receiver, or to the sender if the broker receives. ``delay_s`` and
    ``lasts_s`` are ranges of uniformly distributed durations. ``kinds`` limits the faults to these kinds.
    """

    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    cut: float = 0.0
    freeze: float = 0.0
    delay_s: tuple[float, float] = (0.0, 1.0)
    lasts_s: tuple[float, float] = (0.1, 10.0)
    kinds: frozenset[Kind] | None = None

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        if self.kinds is not None and passing.kind not in self.kinds:
            return UNHARMED
        struck = (passing.receiver or passing.sender,)
        return Fate(
            drop=dice.random() < self.drop,
            double=dice.random() < self.double,
            delay_s=dice.uniform(*self.delay_s) if dice.random() < self.delay else 0.0,
            cut=struck if dice.random() < self.cut else (),
            freeze=struck if dice.random() < self.freeze else (),
            lasts_s=dice.uniform(*self.lasts_s),
        )
