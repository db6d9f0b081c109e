"""Which tasks are sampled next, by what their groups have shown so far.

A `Curriculum` has four methods. Three are in the box:

=============  ============================================================================================
``uniform``    all tasks in random order, then again
``filter``     as ``uniform``, but a task whose last ``z`` groups had no signal, or failed, is skipped with
               probability ``1 - 0.5 ** z``, at most 0.9 (after GRESO, https://arxiv.org/abs/2506.02177)
``posterior``  tasks whose rewards will probably differ: a posterior of each task's pass rate (if rewards are
               not 0 and 1, of their variance), Thompson sampling, and a share of random tasks; a task whose
               last ``z`` groups failed is worth ``0.5 ** z`` times as much, at least 0.1
=============  ============================================================================================

Tasks are numbers from 0. A curriculum that is restored continues exactly as it would have continued.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from statistics import fmean
from typing import Literal, Protocol, get_args

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.files import has_signal
from gym_runtime.logs import logger

CurriculumName = Literal["uniform", "filter", "posterior"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has shown.

    Attributes:
        task: its number.
        rewards: of its rollouts that have one, in any order.
        tokens: how many tokens each of them sampled.
        version: of the weights when the group started.
    """

    task: int
    rewards: list[float]
    tokens: list[int] = []
    version: int = 0


class Curriculum(Protocol):
    """Decides which tasks are sampled. Its methods return at once and are called by one thread."""

    def next(self, count: int) -> list[tuple[int, int]]:
        """The next tasks, as (task, rollouts in its group). May return fewer than ``count``."""
        ...

    def observe(self, seen: Seen) -> None:
        """A group has ended. Each task that `next` returned is observed once, also if all rollouts failed."""
        ...

    def state(self) -> bytes:
        """All that the curriculum has learned, and its place in the tasks."""
        ...

    def restore(self, state: bytes) -> None:
        """Continue from a state; groups that were in progress then have ended with their process.

        Raises:
            UsageError: it is the state of another curriculum, or of other tasks.
        """
        ...


class _Saved(msgspec.Struct, kw_only=True):
    kind: str
    tasks: int
    calls: int = 0
    drawn: int = 0
    flat: dict[int, int] = {}
    beliefs: dict[int, tuple[float, float, int]] = {}
    spreads: dict[int, tuple[float, float, int]] = {}
    usual_spread: float | None = None
    busy: list[int] = []
    best: list[int] = []
    best_for: int = -1
    version: int = 0


class Uniform:
    """All tasks in random order, then again in another one; to order 1,000,000 tasks takes half a second.

    Tasks that were in progress in a state that is restored come first.
    """

    kind = "uniform"

    def __init__(self, tasks: int, size: int = 8, *, seed: int = 0) -> None:
        if tasks < 1:
            raise UsageError("there are no tasks: rows is empty")
        self._size, self._seed = size, seed
        self._saved = _Saved(kind=self.kind, tasks=tasks)
        self._order: list[int] = []
        self._order_of = -1
        self._again: list[int] = []

    def next(self, count: int) -> list[tuple[int, int]]:
        """See `Curriculum.next`."""
        again, self._again = self._again[:count], self._again[count:]
        new = [self._drawn() for _ in range(count - len(again))]
        self._saved.busy += new
        return [(task, self._size) for task in (*again, *new)]

    def _drawn(self) -> int:
        # The state holds the number of draws, from which the order of a pass follows.
        number, place = divmod(self._saved.drawn, self._saved.tasks)
        if number != self._order_of:
            chance = random.Random(f"{self._seed}.pass.{number}")
            self._order, self._order_of = chance.sample(range(self._saved.tasks), self._saved.tasks), number
        self._saved.drawn += 1
        return self._order[place]

    def _chance(self) -> random.Random:
        """A generator that depends on the seed and the state only."""
        self._saved.calls += 1
        return random.Random(f"{self._seed}.{self._saved.calls}")

    def observe(self, seen: Seen) -> None:
        """See `Curriculum.observe`."""
        for some in (self._saved.busy, self._again):
            if seen.task in some:
                some.remove(seen.task)

    def state(self) -> bytes:
        """See `Curriculum.state`."""
        return msgspec.msgpack.encode(self._saved)

    def restore(self, state: bytes) -> None:
        """See `Curriculum.restore`."""
        try:
            saved = msgspec.msgpack.decode(state, type=_Saved)
        except msgspec.DecodeError as error:
            raise UsageError(f"this is not the state of a curriculum: {error}") from error
        mine = self._saved
        if (saved.kind, saved.tasks) != (mine.kind, mine.tasks):
            raise UsageError(
                f"the state is that of curriculum '{saved.kind}' over {saved.tasks} tasks, and this is "
                f"'{mine.kind}' over {mine.tasks}: use the same curriculum and rows, or another name"
            )
        self._saved, self._again = saved, list(saved.busy)


class Filter(Uniform):
    """As `Uniform`, without most of the tasks whose groups had no signal."""

    kind = "filter"
    most_skipped = 0.9

    def _drawn(self) -> int:
        # It ends: each look draws another task, and no task is skipped for certain.
        while True:
            task = super()._drawn()
            flat = self._saved.flat.get(task, 0)
            if not flat or self._chance().random() >= min(self.most_skipped, 1 - 0.5**flat):
                return task

    def observe(self, seen: Seen) -> None:
        """See `Curriculum.observe`."""
        super().observe(seen)
        if has_signal(seen.rewards):
            self._saved.flat.pop(seen.task, None)
        else:
            self._saved.flat[seen.task] = self._saved.flat.get(seen.task, 0) + 1


class Posterior(Uniform):
    """Tasks whose rewards will probably differ.

    Each task has a Beta posterior of its pass rate, which fades as the weights change. A reward between
    ``lowest`` and ``highest`` counts as that share of a success, so that 0 and 1 need no mention. The task
    with the largest chance of different rewards, for a pass rate that is drawn from its posterior (Thompson
    sampling), comes first; of many tasks, the best of `LOOKED_AT` random ones.

    From the first reward on that is neither ``lowest`` nor ``highest``, nearly every group differs, and what
    counts is by how much: the task with the largest variance within a group comes first, drawn from the
    posterior of normally distributed rewards (an inverse gamma) around the usual variance of all tasks.

    Args:
        tasks: how many there are.
        size: rollouts in a group.
        explore: this share of tasks is drawn from all: the least seen of `LITTLE_KNOWN_OF` random ones.
        prior: the posterior of a task that was never sampled, Beta(prior, prior).
        half_life: after so many versions of the weights, half of what was seen of a task is forgotten.
        lowest, highest: the range of rewards.
    """

    kind = "posterior"

    def __init__(
        self,
        tasks: int,
        size: int = 8,
        *,
        seed: int = 0,
        explore: float = 0.1,
        prior: float = 0.3,
        half_life: float = 80.0,
        lowest: float = 0.0,
        highest: float = 1.0,
    ) -> None:
        super().__init__(tasks, size, seed=seed)
        if not (0 <= explore <= 1 and prior > 0 and half_life > 0 and lowest < highest):
            raise UsageError(
                "explore must be from 0 to 1, prior and half_life above 0, and lowest below highest"
            )
        self._explore, self._prior, self._fade = explore, prior, 0.5 ** (1 / half_life)
        self._lowest, self._range = lowest, highest - lowest
        self._said = False

    def next(self, count: int) -> list[tuple[int, int]]:
        """See `Curriculum.next`. A task is not drawn while a group of it runs."""
        busy = set(self._saved.busy)
        drawn: list[int] = []
        for _ in range(min(count, self._saved.tasks - len(self._saved.busy))):
            chance = self._chance()
            explores = chance.random() < self._explore
            task = self._little_known(chance, busy) if explores else self._promising(busy)
            busy.add(task)
            drawn.append(task)
        self._saved.busy += drawn
        return [(task, self._size) for task in drawn]

    def _little_known(self, chance: random.Random, busy: set[int]) -> int:
        some = [self._idle(chance, busy) for _ in range(LITTLE_KNOWN_OF)]
        return min(some, key=lambda task: sum(self._belief(task)) + self._size * self._failed(task))

    def _failed(self, task: int) -> int:
        """How many groups of a task have failed since the last one with a reward."""
        return self._saved.flat.get(task, 0)

    def _idle(self, chance: random.Random, busy: set[int]) -> int:
        while (task := chance.randrange(self._saved.tasks)) in busy:
            pass
        return task

    def _promising(self, busy: set[int]) -> int:
        # Half of what was looked at is used, then the posteriors are drawn again.
        saved = self._saved
        while saved.best and saved.best_for == saved.version:
            if (task := saved.best.pop()) not in busy:
                return task
        saved.best_for = saved.version
        chance, tasks = self._chance(), saved.tasks
        looked_at = range(tasks) if tasks <= LOOKED_AT else chance.sample(range(tasks), LOOKED_AT)
        idle = [task for task in looked_at if task not in busy] or [self._idle(chance, busy)]
        draw = self._drawn_rate_worth if saved.usual_spread is None else self._drawn_variance
        worth = {task: draw(task, chance) * max(0.1, 0.5 ** self._failed(task)) for task in idle}
        saved.best = sorted(worth, key=worth.__getitem__)[len(worth) // 2 :]
        return saved.best.pop()

    def _drawn_rate_worth(self, task: int, chance: random.Random) -> float:
        """The chance that rewards of 0 and 1 differ within a group, for a pass rate from the posterior."""
        rate = chance.betavariate(*self._belief(task))
        return 1 - rate**self._size - (1 - rate) ** self._size

    def _drawn_variance(self, task: int, chance: random.Random) -> float:
        """A variance from the posterior: an inverse gamma, whose prior is worth `PRIOR_REWARDS` rewards."""
        freedom, squares = self._spread(task)
        usual = max(self._saved.usual_spread or 0.0, 1e-9)
        scale = PRIOR_REWARDS * usual + squares
        return scale / (2 * chance.gammavariate((PRIOR_REWARDS + freedom) / 2, 1.0) or 1e-9)

    def _spread(self, task: int) -> tuple[float, float]:
        """The degrees of freedom of a task's rewards, and their squares around the mean of their group."""
        freedom, squares, version = self._saved.spreads.get(task, (0.0, 0.0, 0))
        kept = self._fade ** max(0, self._saved.version - version)
        return kept * freedom, kept * squares

    def _belief(self, task: int) -> tuple[float, float]:
        wins, losses, version = self._saved.beliefs.get(task, (0.0, 0.0, 0))
        kept = self._fade ** max(0, self._saved.version - version)
        return self._prior + kept * wins, self._prior + kept * losses

    def observe(self, seen: Seen) -> None:
        """See `Curriculum.observe`."""
        super().observe(seen)
        saved = self._saved
        saved.version = max(saved.version, seen.version)
        if not seen.rewards:
            # A row that no rollout gets through would stay one of which nothing is known, and look promising.
            saved.flat[seen.task] = saved.flat.get(seen.task, 0) + 1
            return
        saved.flat.pop(seen.task, None)
        wins, losses = self._belief(seen.task)
        given = [(reward - self._lowest) / self._range for reward in seen.rewards]
        shares = [min(1.0, max(0.0, share)) for share in given]
        if shares != given and not self._said:
            self._said = True
            outside = next(one for one, share in zip(seen.rewards, given, strict=True) if not 0 <= share <= 1)
            logger().warning(
                "the curriculum takes a reward outside its range for the end of the range",
                task=seen.task,
                reward=outside,
                remedy="curriculum=Posterior(len(rows), repeats, lowest=..., highest=...)",
            )
        won = sum(shares)
        saved.beliefs[seen.task] = (
            wins - self._prior + won,
            losses - self._prior + len(shares) - won,
            saved.version,
        )
        self._observe_spread(seen.task, shares)

    def _observe_spread(self, task: int, shares: Sequence[float]) -> None:
        saved = self._saved
        if saved.usual_spread is None and all(share in (0.0, 1.0) for share in shares):
            return
        freedom, mean = len(shares) - 1, fmean(shares)
        squares = sum((share - mean) ** 2 for share in shares)
        if freedom:
            usual = squares / freedom if saved.usual_spread is None else saved.usual_spread
            saved.usual_spread = usual + (squares / freedom - usual) / USUAL_GROUPS
        # Around the mean of this group alone: a mean that moves as the policy learns is no spread.
        before, already = self._spread(task)
        saved.spreads[task] = before + freedom, already + squares, saved.version

    def restore(self, state: bytes) -> None:
        """See `Curriculum.restore`."""
        super().restore(state)
        # The groups in progress ended with the process that ran them.
        self._saved.busy = []

    def rates(self, *, evidence: float) -> list[tuple[int, float]]:
        """The estimated pass rates of the tasks of which at least so many rewards are not forgotten."""
        found = [(task, self._belief(task)) for task in sorted(self._saved.beliefs)]
        return [
            (task, wins / (wins + losses))
            for task, (wins, losses) in found
            if wins + losses - 2 * self._prior >= evidence
        ]

    def chance(self, task: int, rewards: Sequence[float], more: int) -> float:
        """The chance that ``more`` further rewards of a task differ from equal ones: see `differing`."""
        return differing(
            *self._belief(task), [(reward - self._lowest) / self._range for reward in rewards], more
        )


PRIOR_REWARDS = 2.0
"""What is usual among all tasks counts as so many rewards of a task."""
USUAL_GROUPS = 32
"""The variance that is usual is a running mean over so many groups."""
LITTLE_KNOWN_OF = 2
LOOKED_AT = 2048
"""Of more tasks than this, so many random ones are compared: 20 ms at most."""


def differing(wins: float, losses: float, rewards: Sequence[float], more: int) -> float:
    """The chance that ``more`` further 0/1 rewards are not all equal to the first ones, which are equal.

    Args:
        wins, losses: the Beta posterior of the pass rate before the first ones.

    >>> round(differing(0.3, 0.3, [0.0] * 4, 4), 2)
    0.19
    """
    count = len(rewards)
    won = bool(rewards) and rewards[0] > 0.5
    a, b = (wins + count, losses) if won else (losses + count, wins)
    return 1 - prod((a + i) / (a + b + i) for i in range(more))


def kind_of(state: bytes) -> tuple[str, int, int]:
    """The kind of a curriculum of the box, its number of tasks and its version, from its state.

    Raises:
        UsageError: it is the state of no such curriculum.
    """
    try:
        saved = msgspec.msgpack.decode(state, type=_Saved)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is not the state of a curriculum of the box: {error}") from error
    return saved.kind, saved.tasks, saved.version


def made_curriculum(chosen: CurriculumName | Curriculum, tasks: int, size: int, seed: int = 0) -> Curriculum:
    """A curriculum of the box, by its name; one of the caller's own is returned as it is.

    Args:
        size: rollouts in a group.
        seed: of its random choices, if it is one of the box.

    Raises:
        UsageError: there is no such curriculum, or there are no tasks.
    """
    if not isinstance(chosen, str):
        return chosen
    makers = {made.kind: made for made in (Uniform, Filter, Posterior)}
    if chosen not in makers:
        raise UsageError(
            f"there is no curriculum '{chosen}': use one of {', '.join(get_args(CurriculumName))}"
        )
    return makers[chosen](tasks, size, seed=seed)
