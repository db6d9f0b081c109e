"""Signs beside the rewards: longer replies, repetition, malformed calls, one answer for all.

Each is compared with the first looks of the run by a cumulative sum of its deviations (Page's CUSUM). Such
signs also drift while a policy learns honestly, so they are notices, and no alarms.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque

BASELINE = 100
"""Looks that say what is usual."""
SLACK, LIMIT, MOST = 1.0, 40.0, 4.0
"""In standard deviations: what is let pass of each look, what the sum may reach, how much one look adds."""
ONE_ANSWER = 0.5
WORDS = {
    "length": "replies are longer",
    "repetition": "replies repeat themselves",
    "malformed": "more calls are malformed",
}


class Drift:
    """The signs of one environment."""

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._baseline: dict[str, list[float]] = {}
        self._sums: dict[str, float] = {}
        self._answers: deque[str] = deque(maxlen=BASELINE)
        self._usual_share = 1.0
        self._said: set[str] = set()
        self._looks = 0

    def add(self, signs: dict[str, float], answer: str) -> list[str]:
        """Take in what a look has seen; notices, each once."""
        found = [name for name, value in signs.items() if self._rises(name, value)]
        self._looks += 1
        if answer:
            self._answers.append(answer)
        notices = [f"notice: {self._environment}: {WORDS.get(name, name)} than at first" for name in found]
        if self._one_answer():
            notices.append(f"notice: {self._environment}: most replies give the same answer")
        return notices

    def _rises(self, name: str, value: float) -> bool:
        first = self._baseline.setdefault(name, [])
        if len(first) < BASELINE:
            first.append(value)
            return False
        mean = statistics.fmean(first)
        deviation = max(statistics.pstdev(first), 0.05 * abs(mean), 0.01)
        score = min(MOST, (value - mean) / deviation) - SLACK
        self._sums[name] = max(0.0, self._sums.get(name, 0.0) + score)
        return self._sums[name] > LIMIT and self._first_time(name)

    def _one_answer(self) -> bool:
        if len(self._answers) < BASELINE:
            return False
        share = Counter(self._answers).most_common(1)[0][1] / len(self._answers)
        if self._looks <= BASELINE:
            self._usual_share = share
        return share >= max(ONE_ANSWER, 2 * self._usual_share) and self._first_time("answer")

    def _first_time(self, name: str) -> bool:
        new = name not in self._said
        self._said.add(name)
        return new
