"""Instructions on which words a text has, how often, and where."""

from __future__ import annotations

import re

from gym_resources.instructions.relation import Relation, meets
from gym_resources.instructions.sentences import sentences, sentences_by_rules
from gym_resources.instructions.words import (
    Expression,
    count_word,
    has_word,
    matches,
    occurrences,
    tokens,
    word_tokens,
)


def existence(text: str, *, keywords: list[Expression]) -> bool:
    """Each keyword, an expression, is there, if only as a part of a word."""
    return all(re.search(keyword, text, re.IGNORECASE) for keyword in keywords)


def frequency(text: str, *, keyword: Expression, frequency: int, relation: Relation) -> bool:
    """A keyword, an expression, is there less than, or at least, so many times."""
    return meets(matches(text, Expression(keyword.strip())), relation, frequency)


def frequency_or_exactly(
    text: str, *, keyword: Expression, frequency: int, relation: Relation | None = None
) -> bool:
    """As `frequency`; without a relation exactly so many times."""
    found = matches(text, Expression(keyword.strip()))
    return found == frequency if relation is None else meets(found, relation, frequency)


def forbidden_words(text: str, *, forbidden_words: list[Expression]) -> bool:
    r"""None of the words, expressions between ``\b``, is there, save as a part of another word."""
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: Relation) -> bool:
    """A letter, in either case, is there less than, or at least, so many times.

    IFEval takes a random letter instead of a sign such as ``#``; here the sign is counted.
    """
    return meets(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


def word_once(text: str, *, keyword: Expression) -> bool:
    """A keyword, an expression, is there exactly once."""
    return matches(text, Expression(keyword.strip())) == 1


def once_and_twice(text: str, *, keyword1: str, keyword2: str) -> bool:
    """The first keyword is there exactly once, the second exactly twice."""
    return occurrences(text, keyword1.strip()) == 1 and occurrences(text, keyword2.strip()) == 2


def multiple(text: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str) -> bool:
    """Five words are there exactly 1, 2, 3, 5 and 7 times."""
    wanted = zip((keyword1, keyword2, keyword3, keyword4, keyword5), (1, 2, 3, 5, 7), strict=True)
    return all(count_word(text, keyword.strip()) == count for keyword, count in wanted)


def no_spaced_word(text: str, *, keyword: str) -> bool:
    """A word is not there between two spaces, in this case."""
    return f" {keyword.strip()} " not in text


def in_sentence(text: str, *, word: str, n: int) -> bool:
    """A word is in the n-th sentence, counted from 1."""
    found = sentences(text)
    return 0 < n <= len(found) and has_word(found[n - 1], word)


def at_position(text: str, *, keyword: str | list[str], n: int, m: int) -> bool:
    """The m-th token of the n-th sentence is the keyword; both are counted from 1, punctuation counts."""
    wanted = keyword if isinstance(keyword, str) else keyword[0]
    found = sentences_by_rules(text)
    if not 0 < n <= len(found):
        return False
    parts = tokens(found[n - 1])
    return 0 < m <= len(parts) and parts[m - 1] == wanted.strip()


def at_word_position(text: str, *, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence is the keyword, in any case; punctuation does not count."""
    found = sentences(text)
    if not 0 < n <= len(found):
        return False
    parts = word_tokens(found[n - 1])
    return 0 < m <= len(parts) and parts[m - 1].lower() == keyword.strip().lower()


def second_and_second_to_last(text: str, *, keyword: str) -> bool:
    """The second word and the one before the last are the keyword, in any case."""
    parts = word_tokens(text)
    return len(parts) > 1 and parts[1].lower() == parts[-2].lower() == keyword.strip().lower()
