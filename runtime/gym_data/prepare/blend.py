"""Blending: how many rows each environment gives, and in which order they come.

Everything is decided by the seed, and drawn while the rows stream: an urn says which environment comes
next, and a row of it is taken or left as it passes. The rows of one environment keep their order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from gym_runtime.errors import UsageError

T = TypeVar("T")


def quotas(
    counts: Sequence[int | None], weights: Sequence[float] | None = None, size: int | None = None
) -> list[int]:
    """How many rows each source gives.

    Without a size: every row once; with weights, as many as there can be with no row twice, in these
    proportions. With a size: that many in all, rounded so that they add up; sources that are too small
    give rows more than once. Without weights every row counts the same.

    Args:
        counts: the rows of each source; None for one that makes as many as it is asked for.
        weights: one for each source, above 0; only their ratios matter.

    Raises:
        UsageError: a weight or the size is not valid, or only endless sources could decide the size.

    >>> quotas([10, 30])
    [10, 30]
    >>> quotas([10, 30], [1, 1])
    [10, 10]
    >>> quotas([10, 30], [1, 3], size=8)
    [2, 6]
    """
    if size is not None and size < 1:
        raise UsageError(f"the size is {size}; it must be at least 1")
    for weight in weights or ():
        if not (math.isfinite(weight) and weight > 0):
            raise UsageError(f"a weight is {weight:g}; it must be above 0")
    finite = [count for count in counts if count is not None]
    if size is None:
        if len(finite) < len(counts) and (weights is None or not finite):
            raise UsageError("rows that are generated have no end; say how many: --size N")
        if weights is None:
            return finite
        size = math.floor(
            sum(weights) * min(n / w for n, w in zip(counts, weights, strict=True) if n is not None) + 1e-9
        )
    if weights is None:
        even = sum(finite) / len(finite) if finite else 1.0
        weights = [even if count is None else float(count) for count in counts]
    return _apportion(size, weights)


def _apportion(size: int, weights: Sequence[float]) -> list[int]:
    """The size in these proportions, in whole numbers: largest remainders first."""
    total = math.fsum(weights)
    exact = [size * weight / total for weight in weights]
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: size - sum(shares)]:
        shares[i] += 1
    return shares


def interleave(shares: Sequence[int], seed: int) -> Iterator[int]:
    """Which source comes next: each as often as its share, every order equally likely."""
    draw = random.Random(seed)
    left = list(shares)
    while total := sum(left):
        at = draw.randrange(total)
        for source, count in enumerate(left):
            if at < count:
                left[source] -= 1
                yield source
                break
            at -= count


def take(rows: Iterable[T], count: int, share: int, seed: int) -> Iterator[T]:
    """Exactly ``share`` of ``count`` rows, in their order: all of them as often as they fit, then a sample.

    ``rows`` is iterated once per pass. Source: Knuth, TAOCP 2, 3.4.2, algorithm S.

    >>> list(take("abc", 3, 7, seed=0))[:6]
    ['a', 'b', 'c', 'a', 'b', 'c']
    """
    passes, wanted = divmod(share, count)
    for _ in range(passes):
        yield from rows
    draw = random.Random(seed)
    for seen, row in enumerate(rows if wanted else ()):
        if draw.random() * (count - seen) < wanted:
            wanted -= 1
            yield row
        if not wanted:
            return


def blend(sources: Sequence[Iterator[T]], shares: Sequence[int], seed: int) -> Iterator[tuple[int, T]]:
    """The rows of all sources, each with its source's number; ``sources`` yield as many as their shares."""
    for source in interleave(shares, seed):
        yield source, next(sources[source])
