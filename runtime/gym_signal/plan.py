"""What to sample next, until a batch of groups with signal is there: the decisions, without any waiting.

A group is sampled in waves, and each wave starts when all rollouts of the wave before have ended, so that no
decision depends on which rollout was fast. After a wave whose rewards are all equal the group may be stopped:
if the chance that further rewards differ is small (`Bet.below`), it goes on with probability `Bet.keep` only,
and then its advantages count ``1 / keep`` times (`Drawn.weight`), so that stopping adds no bias.

A group whose rewards do not differ is left out, and others take its place. How many groups run at a time
follows from the share of groups with signal so far. What is finished beyond a batch waits for the next one.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
from gym_runtime.errors import UsageError, require_at_least
from gym_runtime.files import has_signal

from gym_signal.curricula import Curriculum, Seen, differing
from gym_signal.deadlines import Deadlines, free_staleness

REPLACEMENTS = 3
"""So many failed rollouts of a group are replaced for each of its members."""
RECENT = 256
"""From so many groups the share with signal, and their lengths, are estimated."""

Chance = Callable[[int, Sequence[float], int], float]
"""Of a task, its equal rewards so far, and how many are to come: the chance that those differ."""
End = Literal["signal", "flat", "stopped", "failed"]


class Bet(msgspec.Struct, frozen=True, kw_only=True):
    """When a group whose rewards are equal so far is stopped.

    Attributes:
        below: if the chance that further rewards differ is less than this; 0 stops no group.
        keep: such a group goes on with this probability all the same, and counts ``1 / keep`` times.
    """

    below: float = 0.3
    keep: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.below <= 1 and 0 < self.keep <= 1):
            raise UsageError("a bet needs below from 0 to 1, and keep above 0 and at most 1")


@dataclass(eq=False)
class Drawn:
    """A group that was drawn for sampling.

    Attributes:
        task: the number of its row.
        size: rollouts with a reward that it shall have.
        born: the version of the weights when it started.
        goal: as `size`, at the end of the present wave.
        ordered: rollouts started so far; they are numbered from 0.
        rewards: of each rollout that has ended, None if it failed.
        tokens: sampled by each of them.
        weight: how often its advantages count.
        ended: why it has ended; None while it runs.
    """

    task: int
    size: int
    born: int
    goal: int = 0
    ordered: int = 0
    rewards: dict[int, float | None] = field(default_factory=dict[int, float | None])
    tokens: dict[int, int] = field(default_factory=dict[int, int])
    weight: float = 1.0
    ended: End | None = None

    @property
    def scored(self) -> list[float]:
        """The rewards of the rollouts that have one, in their order."""
        return [reward for _, reward in sorted(self.rewards.items()) if reward is not None]

    @property
    def spent(self) -> int:
        """The tokens of all its rollouts that have ended."""
        return sum(self.tokens.values())


class Order(NamedTuple):
    """Start the rollouts ``members`` of a group."""

    group: Drawn
    members: range


class Plan:
    """`due` says what to start; tell it what ended with `finished`; `take` a batch when there is one.

    Args:
        want: groups in a batch.
        waves: rollouts of each wave; the rest of a group is its last wave.
        chance: by default that of a task of which nothing is known.
        signal: leave out groups whose rewards do not differ.
        in_flight: groups in progress at most.
        staleness: the oldest age of a group in a batch, see `Deadlines`; None for no bound.
        ahead: batches that are sampled beyond the next one; by default ``staleness``, or 1 without a bound.

    Attributes:
        running: the groups in progress, oldest first.
        ready: the groups for the next batches, in the order in which they ended.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        want: int,
        *,
        waves: Sequence[int] = (),
        bet: Bet | None = None,
        chance: Chance | None = None,
        signal: bool = True,
        in_flight: int = 1024,
        staleness: int | None = None,
        ahead: int | None = None,
        seed: int = 0,
    ) -> None:
        sizes = {f"waves[{number}]": size for number, size in enumerate(waves)}
        require_at_least(1, want=want, in_flight=in_flight, **sizes)
        require_at_least(0, staleness=staleness or 0, ahead=ahead or 0)
        self.running: dict[Drawn, None] = {}
        self.ready: list[Drawn] = []
        self.deadlines = Deadlines(want, staleness)
        self._curriculum, self._want, self._in_flight = curriculum, want, in_flight
        self._goal = want * (1 + ((1 if staleness is None else staleness) if ahead is None else ahead))
        self._waves, self._bet, self._signal = tuple(waves), bet or Bet(), signal
        self._chance = chance or _chance
        self._random = random.Random(seed)
        self._had_signal = deque[bool](maxlen=RECENT)
        self._longest = deque[int](maxlen=RECENT)

    @property
    def share(self) -> float:
        """The share of recent groups that had signal, with one of each kind before there were any."""
        return (sum(self._had_signal) + 1) / (len(self._had_signal) + 2) if self._signal else 1.0

    @property
    def free_staleness(self) -> int | None:
        """The smallest bound under which the engine would not wait; None before a group has ended."""
        return free_staleness(self._longest, self._in_flight, self._want) if self._longest else None

    def due(self) -> Iterator[Order]:
        """The rollouts of new groups that should start now."""
        # Enough for full batches in five cases of six.
        missing, share = max(0, self._goal - len(self.ready)), self.share
        enough = math.ceil(missing / share + math.sqrt(missing * (1 - share)) / share)
        while len(self.running) < min(enough, self._in_flight) and self.deadlines.may_start():
            drawn = self._curriculum.next(1)
            if not drawn:
                return
            group = Drawn(*drawn[0], born=self.deadlines.start())
            self.running[group] = None
            yield self._next_wave(group)

    def _next_wave(self, group: Drawn) -> Order:
        ends = [sum(self._waves[: number + 1]) for number in range(len(self._waves))]
        group.goal = min((end for end in ends if group.goal < end < group.size), default=group.size)
        return self._order(group)

    def _order(self, group: Drawn) -> Order:
        first, group.ordered = group.ordered, group.ordered + group.goal - len(group.scored)
        return Order(group, range(first, group.ordered))

    def finished(
        self, group: Drawn, member: int, reward: float | None, tokens: int, *, hopeless: bool = False
    ) -> Order | None:
        """A rollout has ended; returns what to start after it. `Drawn.ended` says whether its group has.

        Args:
            reward: None if it failed.
            tokens: sampled by it.
            hopeless: another rollout of this task would fail too.
        """
        group.rewards[member], group.tokens[member] = reward, tokens
        if len(group.rewards) < group.ordered or group.ended:
            return None
        scored = len(group.scored)
        if scored < group.goal:
            if not hopeless and group.ordered - scored <= REPLACEMENTS * group.size:
                return self._order(group)
            self._end(group, "failed")
        elif scored < group.size and not self._stops(group):
            return self._next_wave(group)
        else:
            signal = not self._signal or has_signal(group.scored)
            self._end(group, "signal" if signal else "flat" if scored == group.size else "stopped")
        return None

    def _stops(self, group: Drawn) -> bool:
        rewards = group.scored
        if not self._signal or has_signal(rewards) or group.weight > 1:
            return False
        if self._chance(group.task, rewards, group.size - len(rewards)) >= self._bet.below:
            return False
        group.weight = 1 / self._bet.keep
        return self._random.random() >= self._bet.keep

    def _end(self, group: Drawn, end: End) -> None:
        group.ended = end
        del self.running[group]
        # Also of a group that failed: the curriculum must know that it is over.
        self._curriculum.observe(
            Seen(
                task=group.task,
                rewards=group.scored,
                tokens=list(group.tokens.values()),
                version=group.born,
            )
        )
        if end == "signal":
            self.ready.append(group)
        else:
            self.deadlines.leave(group.born)
        if end != "failed":
            self._had_signal.append(end == "signal")
            self._longest.append(max(group.tokens.values()))

    def take(self) -> list[Drawn] | None:
        """The next batch, oldest groups first; None if it is not complete, or may not be taken yet."""
        chosen = sorted(self.ready, key=lambda group: group.born)[: self._want]
        births = [group.born for group in chosen]
        if len(chosen) < self._want or not self.deadlines.may_take(births):
            return None
        self.deadlines.take(births)
        taken = set(map(id, chosen))
        self.ready = [group for group in self.ready if id(group) not in taken]
        return chosen

    def installed(self) -> None:
        """The weights trained on all batches taken so far are installed."""
        self.deadlines.installed()


def _chance(task: int, rewards: Sequence[float], more: int) -> float:
    """For a curriculum that does not estimate pass rates."""
    return differing(0.3, 0.3, rewards, more)
