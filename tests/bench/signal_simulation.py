"""What groups with signal cost, and what rules of staleness do: the scheduler in a simulated world.

    PYTHONPATH=tests python -m bench.signal_simulation [--picture docs/images/signal.svg]

Nothing is served and no time passes: `gym_signal.plan.Plan` decides, and this file answers for engine and
trainer. 1,000 tasks have pass rates from Beta(shape, shape): most are nearly always or nearly never solved.
Lengths are log-normal, longer for hard tasks and for failures; all tasks become easier from step to step.

The first table: sampled tokens for each group of 8 with signal. The second: one engine with 256 places, and a
trainer that takes 128 rollouts a step. ``own`` is a test for a bias by length: each rollout's length as a
quantile of its own task's distribution, compared with a uniform distribution (Kolmogorov and Smirnov).
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.cost_picture import bars
from gym_signal.curricula import Curriculum, Posterior, Seen, Uniform
from gym_signal.plan import Bet, Drawn, Order, Plan

TASKS, SIZE, WANT, STEPS = 1000, 8, 64, 40
SPREAD, LONGER_FAILURES, RISE = 0.6, 0.3, 0.03


class Sampled:
    """A simulated rollout: its task's pass rate then, whether it passed, its tokens."""

    __slots__ = ("passed", "rate", "task", "tokens")

    def __init__(self, task: int, rate: float, passed: bool, tokens: float) -> None:
        self.task, self.rate, self.passed, self.tokens = task, rate, passed, tokens


class World:
    """Tasks with pass rates and lengths."""

    def __init__(self, seed: int, shape: float) -> None:
        self.random = random.Random(seed)
        rates = [min(0.9999, max(0.0001, self.random.betavariate(shape, shape))) for _ in range(TASKS)]
        self._logits = [math.log(rate / (1 - rate)) for rate in rates]
        self._log_lengths = [6.9 + 1.2 * (1 - rate) + self.random.gauss(0, 0.3) for rate in rates]

    def rollout(self, task: int, step: int) -> Sampled:
        rate = 1 / (1 + math.exp(-self._logits[task] - RISE * step))
        passed = self.random.random() < rate
        center = self._log_lengths[task] + (0 if passed else LONGER_FAILURES)
        return Sampled(task, rate, passed, math.exp(self.random.gauss(center, SPREAD)))

    def quantile(self, one: Sampled) -> float:
        """The share of its task's rollouts that are shorter."""

        def below(center: float) -> float:
            return 0.5 * math.erfc((center - math.log(one.tokens)) / SPREAD / math.sqrt(2))

        center = self._log_lengths[one.task]
        return one.rate * below(center) + (1 - one.rate) * below(center + LONGER_FAILURES)

    def unbiased(self, trained: Sequence[Sampled]) -> bool:
        """Whether what was trained on has the lengths of all rollouts of the same tasks."""
        some = self.random.sample(trained, min(2000, len(trained)))
        return uniform_p([self.quantile(one) for one in some]) > 0.05


def uniform_p(values: Sequence[float]) -> float:
    """The p-value of the test of Kolmogorov and Smirnov that values are uniform between 0 and 1.

    Source: the asymptotic series with the correction of Stephens (1970), for n above 20.
    """
    ordered, n = sorted(values), len(values)
    distance = max(max((i + 1) / n - x, x - i / n) for i, x in enumerate(ordered))
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance
    if scaled < 0.3:
        return 1.0
    return 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 60))


@dataclass(frozen=True)
class Cost:
    """What a way of sampling took.

    Attributes:
        tokens: sampled for each group with signal.
        late: the same in the second half of the steps.
        tasks: how many different tasks were trained on.
        unbiased: see `World.unbiased`.
    """

    tokens: float
    late: float
    tasks: int
    unbiased: bool


def fixed(world: World, kept: int = SIZE) -> Cost:
    """64 groups of 8 a step, whatever they show: what a loop without a filter samples.

    Args:
        kept: only the fastest of each group are trained on: the bias that must be found.
    """
    tasks = Uniform(TASKS, SIZE, seed=world.random.randrange(1 << 30))
    account = _Account()
    for step in range(STEPS):
        for task, size in tasks.next(WANT):
            group = [world.rollout(task, step) for _ in range(size)]
            account.spend(step, group)
            group = sorted(group, key=lambda one: one.tokens)[:kept]
            if len({one.passed for one in group}) == 2:
                account.train(step, group)
    return account.cost(world)


def planned(world: World, curriculum: Curriculum, **how: object) -> Cost:
    """As the product samples: `Plan` decides which tasks, how many groups, and when a group is stopped."""
    chance = getattr(curriculum, "chance", None)
    plan = Plan(curriculum, WANT, chance=chance, ahead=0, seed=world.random.randrange(1 << 30), **how)  # pyright: ignore
    account, sampled = _Account(), dict[Drawn, list[Sampled]]()

    def run(order: Order | None, step: int) -> None:
        while order is not None:
            group, following = order.group, None
            for member in order.members:
                one = world.rollout(group.task, step)
                sampled.setdefault(group, []).append(one)
                account.spend(step, [one])
                following = plan.finished(group, member, float(one.passed), int(one.tokens)) or following
            order = following

    for step in range(STEPS):
        while (batch := plan.take()) is None:
            for order in list(plan.due()):
                run(order, step)
        plan.installed()
        for group in batch:
            account.train(step, sampled[group])
    return account.cost(world)


class _Account:
    def __init__(self) -> None:
        self._spent, self._groups, self._trained = [0.0] * STEPS, [0] * STEPS, list[Sampled]()

    def spend(self, step: int, sampled: Sequence[Sampled]) -> None:
        self._spent[step] += sum(one.tokens for one in sampled)

    def train(self, step: int, group: Sequence[Sampled]) -> None:
        self._groups[step] += 1
        self._trained += group

    def cost(self, world: World) -> Cost:
        half = STEPS // 2
        return Cost(
            tokens=sum(self._spent) / sum(self._groups),
            late=sum(self._spent[half:]) / sum(self._groups[half:]),
            tasks=len({one.task for one in self._trained}),
            unbiased=world.unbiased(self._trained),
        )


RACING = "the slowest two cancelled"
WAYS: dict[str, Callable[[World], Cost]] = {
    "8 of each task": fixed,
    "refill": lambda world: planned(world, _uniform(world), bet=Bet(below=0)),
    RACING: lambda world: fixed(world, kept=6),
    "posterior": lambda world: planned(world, _posterior(world), bet=Bet(below=0)),
    "posterior, waves 2 + 2 + 4": lambda world: planned(world, _posterior(world), waves=(2, 2, 4)),
}


def _uniform(world: World) -> Curriculum:
    return Uniform(TASKS, SIZE, seed=world.random.randrange(1 << 30))


def _posterior(world: World) -> Curriculum:
    return Posterior(TASKS, SIZE, seed=world.random.randrange(1 << 30))


# -- staleness --------------------------------------------------------------------------------------------

PLACES, BATCH = 256, 128


@dataclass(frozen=True)
class Paced:
    """What a rule of staleness did.

    Attributes:
        oldest, mean_age: of what was trained on, in versions.
        lost: the share of the tokens that was thrown away.
        idle: the share of the engine's places that were empty, over time.
        length: the mean length of what was trained on, over that of all rollouts.
        unbiased: see `World.unbiased`.
    """

    oldest: int
    mean_age: float
    lost: float
    idle: float
    length: float
    unbiased: bool


class _Single:
    """A curriculum of groups of one rollout, of random tasks."""

    def __init__(self, world: World) -> None:
        self._random = world.random

    def next(self, count: int) -> list[tuple[int, int]]:
        return [(self._random.randrange(TASKS), 1) for _ in range(count)]

    def observe(self, seen: Seen) -> None:
        pass

    def state(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def paced(world: World, bound: int | None, *, discard: int | None = None, steps: int = 80) -> Paced:
    """One engine and one trainer.

    Args:
        bound: the product's ``staleness``.
        discard: instead, throw away and repeat what is older at its end: three times, then it has failed.
    """
    ahead = PLACES  # places are always wanted; the bound alone holds them back
    plan = Plan(_Single(world), BATCH, signal=False, in_flight=PLACES, staleness=bound, ahead=ahead)
    busy: list[tuple[float, int, Drawn, Sampled, int, int]] = []
    now = idle = made = lost = 0.0
    number, trained, ages = 0, list[Sampled](), list[int]()
    sampled: dict[Drawn, Sampled] = {}

    def start(group: Drawn, tries: int) -> None:
        nonlocal number
        number += 1
        one = world.rollout(group.task, 0)
        heapq.heappush(busy, (now + one.tokens, number, group, one, plan.deadlines.version, tries))

    while plan.deadlines.taken < steps:
        for order in plan.due():
            start(order.group, 0)
        idle += (PLACES - len(busy)) * (busy[0][0] - now)
        now, _, group, one, born, tries = heapq.heappop(busy)
        made += one.tokens
        if discard is not None and plan.deadlines.version - born > discard:
            lost += one.tokens
            if tries < 3:
                start(group, tries + 1)
            else:
                plan.finished(group, 0, None, int(one.tokens), hopeless=True)
            continue
        sampled[group] = one
        group.born = born if discard is not None else group.born
        plan.finished(group, 0, float(one.passed), int(one.tokens))
        while (batch := plan.take()) is not None:
            for taken in batch:
                trained.append(sampled.pop(taken))
                ages.append(plan.deadlines.version - taken.born)
            plan.installed()
    every = [world.rollout(world.random.randrange(TASKS), 0).tokens for _ in range(4000)]
    steady = trained[len(trained) // 5 :]
    return Paced(
        oldest=max(ages),
        mean_age=fmean(ages),
        lost=lost / made,
        idle=idle / (PLACES * now),
        length=fmean(one.tokens for one in steady) / fmean(every),
        unbiased=world.unbiased(steady),
    )


# -- the tables -------------------------------------------------------------------------------------------


def lines(seeds: int) -> Iterator[str]:
    """Both tables as text, line by line."""
    for shape in (0.15, 0.3):
        yield f"Beta({shape}, {shape}): tokens a group, gain (second half), tasks, no length bias"
        base: list[Cost] = []
        for name, way in WAYS.items():
            costs = [way(World(seed, shape)) for seed in range(seeds)]
            base = base or costs
            tokens, tasks = fmean(one.tokens for one in costs), fmean(one.tasks for one in costs)
            gain = fmean(one.tokens for one in base) / tokens
            late = fmean(one.late for one in base) / fmean(one.late for one in costs)
            own = sum(one.unbiased for one in costs)
            yield f"  {name:28} {tokens:8,.0f}  {gain:.2f} ({late:.2f})  {tasks:4.0f}  {own} of {seeds}"
    yield f"{PLACES} places, {BATCH} rollouts a step: oldest, mean age, lost, idle, length, no length bias"
    for name, bound, discard in (
        ("discarded above 3", None, 3),
        ("staleness=3", 3, None),
        ("discarded above 15", None, 15),
        ("staleness=15", 15, None),
    ):
        runs = [paced(World(seed, 0.3), bound, discard=discard) for seed in range(seeds)]
        mean_age, lost = fmean(one.mean_age for one in runs), fmean(one.lost for one in runs)
        idle, length = fmean(one.idle for one in runs), fmean(one.length for one in runs)
        own = sum(one.unbiased for one in runs)
        yield (
            f"  {name:20} {max(one.oldest for one in runs):3}  {mean_age:.1f}  {lost:5.1%}  {idle:5.1%}  "
            f"{length:.2f}  {own} of {seeds}"
        )


def picture(seeds: int) -> str:
    """Thousands of tokens for each group with signal, as bars."""
    shape = 0.15
    found = [
        (name, round(fmean(way(World(seed, shape)).tokens for seed in range(seeds)) / 1000, 1))
        for name, way in WAYS.items()
        if name != RACING
    ]
    title = f"Thousand tokens sampled for each group with signal; pass rates Beta({shape}, {shape})"
    return bars(title, found, ours={name for name, _ in found if name.startswith("posterior")}, left=240)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=lines.__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--picture", help="an SVG file to write instead")
    options = parser.parse_args()
    if options.picture:
        Path(options.picture).write_text(picture(options.seeds))
    else:
        for line in lines(options.seeds):
            print(line, flush=True)
