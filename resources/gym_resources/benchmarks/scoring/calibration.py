"""How well a model's confidence agrees with what it gets right. All figures are in percent.

Source: ``calib_err`` of Hendrycks et al., as Humanity's Last Exam uses it (github.com/centerforaisafety/hle,
MIT). Its last bin does not enter the sum; so it is here, to keep figures comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

BIN = 100


def calibration_error(confidences: Sequence[float], rewards: Sequence[float]) -> float | None:
    """The root mean square difference between confidence and accuracy, over bins of equally many answers.

    None for fewer than two bins' worth of answers.

    Args:
        confidences: 0 to 100, one for each answer.
        rewards: 1 for a right answer, 0 for a wrong one.
    """
    ranked = sorted(zip(confidences, rewards, strict=True), key=lambda answer: answer[0])
    starts = range(0, len(ranked) - len(ranked) % BIN, BIN)
    if len(starts) < 2:
        return None
    bins = [ranked[start:end] for start, end in pairwise(starts)]
    squares = math.fsum(
        len(one) * (fmean(sure for sure, _ in one) - 100 * fmean(right for _, right in one)) ** 2
        for one in bins
    )
    return math.sqrt(squares / len(ranked))


def half_width(accuracy: float, count: int) -> float:
    """Half the width of the 95 % interval around an accuracy (Wald)."""
    return 1.96 * math.sqrt(accuracy * (100 - accuracy) / count)
