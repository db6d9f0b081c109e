"""The sequential test: do second looks disagree with rewards more often than they did at first?

Each look at a rewarded rollout agrees or disagrees. Under the null hypothesis the share of those that
disagree is at most ``p0``: the upper end of the 97.5 % Clopper-Pearson interval of the first looks, and half
a percent. For each of several larger shares p1 the statistic R = (1 + R) L is kept (Shiryaev-Roberts), with L
the likelihood ratio of the look. The mean of these R, less the number of looks, is a supermartingale under
the null hypothesis, so it exceeds T / a within T looks with a probability of at most a, however often one
looks. After T looks the test begins again with half of a; a is half of alpha at first, so all parts together
cost at most alpha.

The onset is where the likelihood of a change is largest. Source: Pollak, "Optimal detection of a change in
distribution" (1985); Ville's inequality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from gym_runtime.errors import UsageError
from gym_runtime.messages import Alarm

from gym_testing.audit.intervals import wilson

ALPHA = 0.0025
"""Of a whole run: one false alarm in 400 runs."""
HORIZON = 4_000
CALIBRATION = 60
"""Looks from which the usual share of disagreement is taken."""
MARGIN = 0.005
SHARES = (0.1, 0.2, 0.3, 0.5, 0.8)
SHOWN = 10


class Look(msgspec.Struct, frozen=True):
    """A second look at a rewarded rollout.

    Attributes:
        version: of the weights that sampled it; empty if unknown.
        strength: how clear a disagreement is: the reward less what the second look gives, 0 to 1.
    """

    rollout_id: str
    disagrees: bool
    version: str = ""
    strength: float = 1.0


class Evidence:
    """The test of one environment's looks; `add` them in order.

    Args:
        alpha: the probability of a false alarm, at most; share `ALPHA` between environments.
        calibration: the first looks, from which the usual share is taken.
        usual: the usual share of disagreement, at most; then nothing is calibrated.

    Raises:
        UsageError: a value is out of its range.
    """

    def __init__(
        self,
        environment: str,
        alpha: float = ALPHA,
        *,
        calibration: int = CALIBRATION,
        usual: float | None = None,
    ) -> None:
        if not 0 < alpha < 1 or calibration < 1 or (usual is not None and not 0 < usual < 1):
            raise UsageError(
                "alpha and the usual share are between 0 and 1, and at least one look calibrates"
            )
        self.environment = environment
        self._alpha = alpha / 2
        self._calibration = calibration
        self._first: list[Look] = []
        self._looks: list[Look] = []
        self.usual = usual
        self.alarm: Alarm | None = None
        self._begin()

    def _begin(self) -> None:
        self._statistics = [0.0] * len(SHARES)
        self._looks.clear()

    def add(self, look: Look) -> Alarm | None:
        """Take a look in; the alarm, once, when it is raised."""
        if self.usual is None:
            self._first.append(look)
            if len(self._first) == self._calibration:
                disagree = sum(one.disagrees for one in self._first)
                self.usual = min(0.9, upper_end(disagree, self._calibration) + MARGIN)
            return None
        if self.alarm is not None:
            return None
        self._looks.append(look)
        shares = self._alternatives()
        for place, share in enumerate(shares):
            ratio = _ratio(look, share, self.usual)
            self._statistics[place] = (1 + self._statistics[place]) * ratio
        if sum(self._statistics) / len(shares) >= HORIZON / self._alpha:
            self.alarm = self._raised()
            return self.alarm
        if len(self._looks) == HORIZON:
            self._alpha /= 2
            self._begin()
        return None

    def _alternatives(self) -> Sequence[float]:
        """Larger shares than the usual one."""
        assert self.usual is not None
        return [self.usual + (1 - self.usual) * share for share in SHARES]

    def _raised(self) -> Alarm:
        best, onset = -math.inf, 0
        for share in self._alternatives():
            total = 0.0
            for place in range(len(self._looks) - 1, -1, -1):
                total += math.log(_ratio(self._looks[place], share, self.usual or 0.0))
                if total > best:
                    best, onset = total, place
        since = self._looks[onset:]
        disagreeing = sorted((one for one in since if one.disagrees), key=lambda one: -one.strength)
        low, high = wilson(len(disagreeing), len(since)) or (0.0, 1.0)
        return Alarm(
            environment=self.environment,
            since_version=since[0].version,
            since_rollout=since[0].rollout_id,
            looks=len(since),
            disagree=len(disagreeing),
            low=low,
            high=high,
            usual=self.usual or 0.0,
            rollouts=[one.rollout_id for one in disagreeing[:SHOWN]],
        )


def _ratio(look: Look, share: float, usual: float) -> float:
    return share / usual if look.disagrees else (1 - share) / (1 - usual)


def upper_end(found: int, of: int, level: float = 0.975) -> float:
    """The upper end of the one-sided Clopper-Pearson interval, by bisection.

    >>> round(upper_end(0, 60), 3), round(upper_end(3, 200), 3), upper_end(5, 5)
    (0.06, 0.043, 1.0)
    """
    if found >= of:
        return 1.0
    low, high = found / of, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        at_most = sum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(found + 1))
        low, high = (middle, high) if at_most > 1 - level else (low, middle)
    return high
