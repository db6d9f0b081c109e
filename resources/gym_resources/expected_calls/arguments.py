"""Whether the arguments of a call match the expected ones.

Structure and types must be the same, down to the last list; numbers must be equal, and texts of several
words may be phrased differently, as in a summary or a search query.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

FLOAT_TOLERANCE = 1e-6
FEWEST_WORDS = 2


def alike(expected: Any, actual: Any, word_similarity: float) -> bool:
    """Whether two values decoded from JSON are alike.

    The types must be the same, where true and false are integers, too (but 1 is neither 1.0 nor
    true); objects have the same keys, lists the same length, and what they hold is alike; floats differ by
    less than `FLOAT_TOLERANCE`. Two texts of `FEWEST_WORDS` or more have a `similarity` of at least
    ``word_similarity``; others are the same.
    """
    if not isinstance(actual, type(expected)):
        return False
    if isinstance(expected, Mapping):
        wanted, given = cast("Mapping[str, Any]", expected), cast("Mapping[str, Any]", actual)
        return wanted.keys() == given.keys() and all(
            alike(value, given[key], word_similarity) for key, value in wanted.items()
        )
    if isinstance(expected, list):
        pairs = cast("Sequence[Any]", expected), cast("Sequence[Any]", actual)
        return len(pairs[0]) == len(pairs[1]) and all(
            alike(one, other, word_similarity) for one, other in zip(*pairs, strict=True)
        )
    if isinstance(expected, float):
        return abs(expected - actual) < FLOAT_TOLERANCE
    if isinstance(expected, str):
        return _alike_texts(expected, cast("str", actual), word_similarity)
    return expected == actual


def _alike_texts(expected: str, actual: str, word_similarity: float) -> bool:
    words = len(expected.split())
    if words < FEWEST_WORDS or len(actual.split(maxsplit=FEWEST_WORDS - 1)) < FEWEST_WORDS:
        return expected == actual
    if word_similarity <= 0:
        return True
    # At most the expected words can be shared, so a text of very many words need not be counted.
    most = math.ceil(words / word_similarity)
    return len(actual.split(maxsplit=most)) <= most and similarity(expected, actual) >= word_similarity


def similarity(expected: str, actual: str) -> float:
    """The share of two texts' words that both have, each as often as both have it: 0 to 0.5.

    Case does not matter.

    >>> similarity("refund the last order", "refund it")
    0.16666666666666666
    """
    wanted, given = Counter(expected.lower().split()), Counter(actual.lower().split())
    total = wanted.total() + given.total()
    return (wanted & given).total() / total if total else 0.0
