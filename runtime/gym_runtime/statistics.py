"""Means, deviations and standard errors of any finite doubles.

Nothing here overflows. Where the plain way does, and where numbers come one by one, sums are whole
multiples of the smallest double, 2**-1074, which Python keeps exactly however large they are. So a sum does
not depend on the order of its numbers. What is undefined, or larger than a double, is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from sys import float_info

_UNIT_BITS = 1074
_ROOT_BITS = 64  # a root has these further bits, more than a double keeps
_LEAST_SQUARES = 1e-280  # below, squares have lost digits


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing. Of equal numbers it is exactly that number.

    >>> mean([1e308, 1e308]), mean([])
    (1e+308, None)
    """
    if not values:
        return None
    try:
        found = math.fsum(values) / len(values)
        # It is rounded twice: of equal numbers it may be another one, and then each differs from the mean.
        return min(max(found, min(values)), max(values))
    except OverflowError:
        return _singles(values).mean


def deviation(values: Sequence[float], ddof: int = 1) -> float | None:
    """The standard deviation, 0 of a single value; None of nothing, or beyond a double.

    Args:
        ddof: 1 for that of a sample (divided by n - 1), 0 for that of the whole, which is never too large.

    >>> deviation([1.0, 2.0, 4.0, 5.0])
    1.8257418583505538
    """
    center = mean(values)
    if center is None or min(values) == max(values):
        return None if center is None else 0.0
    with suppress(OverflowError):
        squares = math.fsum((value - center) ** 2 for value in values)
        if _LEAST_SQUARES < squares < math.inf:
            return math.sqrt(squares / (len(values) - ddof))
    return _singles(values).deviation(ddof)


def difference(a: float, b: float) -> float | None:
    """``a - b``; None beyond a double."""
    return finite(a - b)


def finite(value: float) -> float | None:
    """The value; None for infinities and NaN."""
    return value if math.isfinite(value) else None


def bounded(value: float) -> float:
    """The value, or the largest double of its sign for an infinity: a sum that travels must be a number."""
    return max(-float_info.max, min(float_info.max, value))


class Total:
    """Numbers that come one by one: how many, and their mean. Less than a microsecond each.

    >>> total = Total()
    >>> total.add(0.25)
    >>> total.add(1.0, times=2)
    >>> total.count, total.mean
    (3, 0.75)
    """

    def __init__(self) -> None:
        self.count = 0
        self._units = 0

    def add(self, value: float, times: int = 1) -> None:
        """Take a finite number in, as often as ``times`` says."""
        self.count += times
        self._units += _units(value) * times

    def __add__(self, other: Total) -> Total:
        both = Total()
        both.count = self.count + other.count
        both._units = self._units + other._units
        return both

    @property
    def mean(self) -> float | None:
        """None without numbers."""
        return self._units / (self.count << _UNIT_BITS) if self.count else None


class Clusters:
    """Numbers in clusters, such as the rewards of a task: the mean of all, and its standard error.

    The numbers of one cluster are not independent, so the standard error counts clusters: with ``C`` clusters
    of ``n_c`` numbers that sum up to ``T_c``, ``N`` numbers in all, and the mean ``m``,

        sqrt(C / (C - 1) * sum((T_c - n_c * m)**2)) / N

    which, for clusters of one size, is the standard deviation of the clusters' means divided by ``sqrt(C)``.

    Source: Miller, "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640, on clustered standard
    errors; the factor ``C / (C - 1)``, for few clusters, is that of Cameron and Miller, "A Practitioner's
    Guide to Cluster-Robust Inference", 2015.

    >>> clusters = Clusters()
    >>> for rewards in ([0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]):
    ...     clusters.add(rewards)
    >>> clusters.mean, round(clusters.standard_error, 6)
    (0.5, 0.204124)
    """

    def __init__(self) -> None:
        self.clusters = 0
        self.count = 0
        # Of the clusters' sums and sizes: sums, sums of squares, and the sum of products.
        self._total = self._squares = self._products = self._sizes = 0

    def add(self, values: Sequence[float], times: int = 1) -> None:
        """Take in the finite numbers of ``times`` equal clusters; those without any do not count."""
        size = len(values)
        if not size:
            return
        total = sum(map(_units, values))
        self.clusters += times
        self.count += size * times
        self._total += total * times
        self._squares += total * total * times
        self._products += total * size * times
        self._sizes += size * size * times

    @property
    def mean(self) -> float | None:
        """None without numbers."""
        return self._total / (self.count << _UNIT_BITS) if self.count else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None with less than two clusters."""
        if self.clusters < 2:
            return None
        return _root(self.clusters * self._residuals, (self.clusters - 1) * self.count**4)

    def deviation(self, ddof: int = 1) -> float | None:
        """As the function `deviation`, of clusters of one number each."""
        if self.clusters < 2:
            return 0.0 if self.clusters else None
        return _root(self._residuals, (self.clusters - ddof) * self.count**2)

    @property
    def _residuals(self) -> int:
        """``sum((T_c - n_c * m)**2) * N**2``, exactly, in squared units."""
        count, total = self.count, self._total
        return (
            count * count * self._squares - 2 * count * total * self._products + total * total * self._sizes
        )


def _singles(values: Sequence[float]) -> Clusters:
    clusters = Clusters()
    for value in values:
        clusters.add((value,))
    return clusters


def _units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_UNIT_BITS + 1 - denominator.bit_length())


def _root(numerator: int, denominator: int) -> float | None:
    """The root of a fraction of squared units."""
    with suppress(OverflowError):
        return math.isqrt((numerator << 2 * _ROOT_BITS) // denominator) / (1 << (_UNIT_BITS + _ROOT_BITS))
    return None
