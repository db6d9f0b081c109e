"""How often all of k attempts at a task succeed. All figures are in percent.

Source: pass^k of tau-bench (Yao et al. 2024, arXiv:2406.12045).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from gym_runtime import ScoredRollout

from gym_resources.benchmarks.scoring.shares import by_task

ALMOST = 1 - 1e-6


def pass_hat(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """``pass^1``, ``pass^2`` and so on, up to the fewest rollouts that a task has."""
    tasks = [(len(task), sum(one.reward >= ALMOST for one in task)) for task in by_task(rollouts)]
    return {
        f"pass^{k}": 100 * fmean(math.comb(right, k) / math.comb(count, k) for count, right in tasks)
        for k in range(1, min(count for count, _ in tasks) + 1)
    }
