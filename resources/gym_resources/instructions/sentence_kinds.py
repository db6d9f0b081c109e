"""Instructions on sentences beside each other: their kinds, their lengths, their sounds."""

from __future__ import annotations

from itertools import pairwise

from gym_resources.instructions.sentences import sentences
from gym_resources.instructions.words import PUNCTUATION, plain_words


def two_statements_a_question(text: str) -> bool:
    """There are twice as many sentences that end with a full stop as with a question mark."""
    full_stops, questions, _ = _kinds(text)
    return full_stops == 2 * questions


def balanced(text: str) -> bool:
    """As many sentences end with a full stop as with a question mark and with an exclamation mark."""
    return len(set(_kinds(text))) == 1


def _kinds(text: str) -> tuple[int, int, int]:
    ends = [sentence[-1:] for sentence in sentences(text)]
    return ends.count("."), ends.count("?"), ends.count("!")


def three_alike(text: str) -> bool:
    """Three sentences of the same number of characters, in which no word comes twice."""
    found = sentences(text)
    words = plain_words(" ".join(found).lower())
    same_length = len({len(sentence.strip()) for sentence in found}) == 1
    return len(found) == 3 and same_length and len(words) == len(set(words))


def growing(text: str, *, small_n: int) -> bool:
    """Each sentence has exactly so many words more than the one before."""
    lengths = [len(plain_words(sentence)) for sentence in sentences(text)]
    return all(longer == shorter + small_n for shorter, longer in pairwise(lengths))


def growing_alliteration(text: str) -> bool:
    """Each sentence has more words in runs with the same first letter than the one before."""
    lengths = [_alliteration(sentence) for sentence in sentences(text)]
    return all(less < more for less, more in pairwise(lengths))


def _alliteration(sentence: str) -> int:
    """How many words of a sentence have a neighbour with the same first letter, a run counting once."""
    words = [word.lstrip(PUNCTUATION + " ") for word in sentence.lower().split()]
    starts = [word[0] for word in words if word]
    alike = [one == other for one, other in pairwise(starts)]
    return sum(alike) + sum(now and not before for before, now in pairwise([False, *alike]))
