"""Advantages within a group, in the definitions of the trainers.

Every definition compares a rollout with the others of its group that have a reward. A rollout without one has
the advantage 0 and leaves the others' alone, and so has a rollout that is the only one with a reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from gym_runtime.environment.catalogue import suggest
from gym_runtime.errors import UsageError
from gym_runtime.statistics import bounded, deviation, mean

Advantage = Literal["grpo", "dr_grpo", "rloo"]
EPSILON = 1e-4
"""Added to the standard deviation, as TRL adds it."""
# The difference of two rewards like 1.7e308 is no double: these are counted in a larger unit, a power of
# two, which changes no digit.
_LARGE = 2.0**1000
_LARGE_UNIT = 2.0**64


def advantages(rewards: Iterable[float | None], kind: Advantage = "grpo") -> list[float]:
    """The advantage of each rollout of a group, in their order.

    Args:
        rewards: None or NaN for a rollout without one.
        kind: ``grpo``: the difference from the mean, divided by the standard deviation (of a sample, with
            n - 1) plus `EPSILON`. ``dr_grpo``: that difference alone. ``rloo``: the difference from the mean
            of the others. An advantage beyond the doubles is the largest one.

    Raises:
        UsageError: there is no such definition.

    Source: Shao et al., "DeepSeekMath" (GRPO), https://arxiv.org/abs/2402.03300, with TRL's GRPOTrainer 1.16
    for the sample's deviation and `EPSILON`; Liu et al., "Understanding R1-Zero-Like Training: A Critical
    Perspective" (Dr. GRPO), https://arxiv.org/abs/2503.20783; Ahmadian et al., "Back to Basics: Revisiting
    REINFORCE Style Optimization" (RLOO), https://arxiv.org/abs/2402.14740.

    >>> advantages([1.0, 0.0, None], "dr_grpo")
    [0.5, -0.5, 0.0]
    >>> advantages([1.0, 0.0, 0.5], "rloo")
    [0.75, -0.75, 0.0]
    """
    if kind not in get_args(Advantage):
        known = list(get_args(Advantage))
        raise UsageError(
            f"there is no advantage '{kind}'{suggest(kind, known)}: use one of {', '.join(known)}"
        )
    # One form for "no reward", as trainers' arrays have it.
    given = [math.nan if reward is None else reward for reward in rewards]
    scored = [reward for reward in given if not math.isnan(reward)]
    if len(scored) < 2:
        return [0.0] * len(given)
    unit = 1.0 if max(map(abs, scored)) < _LARGE else _LARGE_UNIT
    center = mean([reward / unit for reward in scored]) or 0.0
    scale = _scale([reward / unit for reward in scored], kind, unit)
    return [0.0 if math.isnan(reward) else bounded((reward / unit - center) * scale) for reward in given]


def _scale(scored: Sequence[float], kind: Advantage, unit: float) -> float:
    """What a difference from the mean is multiplied by, where rewards are in this unit."""
    count = len(scored)
    match kind:
        case "grpo":
            return 1.0 / ((deviation(scored) or 0.0) + EPSILON / unit)
        case "dr_grpo":
            return unit
        case "rloo":
            # r - (sum - r) / (n - 1) is (r - mean) * n / (n - 1).
            return unit * count / (count - 1)
