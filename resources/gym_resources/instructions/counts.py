"""Instructions on the share and the number of certain words: names, numbers, pronouns, stop words."""

from __future__ import annotations

import re

from gym_resources.instructions.vocabulary import CONJUNCTIONS, PERSON_NAMES, PRONOUNS, STOP_WORDS
from gym_resources.instructions.words import PUNCTUATION, count_words, has_word, tokens, trimmed

_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")


def conjunctions(text: str, *, small_n: int) -> bool:
    """At least so many different coordinating conjunctions are there; ``and`` and ``And,`` are two."""
    return len({word for word in text.split() if trimmed(word).lower() in CONJUNCTIONS}) >= small_n


def names(text: str, *, n: int) -> bool:
    """At least so many different names of a list of fifty are there."""
    return sum(has_word(text, name, ignore_case=False) for name in PERSON_NAMES) >= n


def numbers(text: str, *, n: int) -> bool:
    """There are exactly so many numbers; ``3.14`` and ``100,000`` are one each."""
    return len(_DIGITS.findall(text.translate(str.maketrans("", "", PUNCTUATION)))) == n


def pronouns(text: str, *, n: int) -> bool:
    """There are at least so many pronouns; those with slashes between count each."""
    return sum(token in PRONOUNS for token in tokens(text.replace("/", " ").lower())) >= n


def stop_words(text: str, *, percentage: float) -> bool:
    """At most so many per cent of the words are stop words. Source: the list of the NLTK, English."""
    count = count_words(text)
    stops = sum(word.lower() in STOP_WORDS for word in _WORD.findall(text))
    return count > 0 and stops / count * 100 <= percentage


def trigram_overlap(text: str, *, reference_text: str, percentage: float) -> bool:
    """So many per cent of the text's different trigrams of characters, two more or less, are in a reference.

    The benchmark's rule, although its prompts speak of trigrams only, which may be read as those of words.
    """
    own, other = _trigrams(text), _trigrams(reference_text)
    return bool(own) and abs(len(own & other) / len(own) * 100 - percentage) <= 2


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def japanese_words(text: str, *, n: int) -> bool:
    """Every n-th word has Japanese characters; numbers and mere punctuation do not count."""
    every_nth = [trimmed(word) for word in text.split()[n - 1 :: n]] if n > 0 else []
    return all(_JAPANESE.search(word) for word in every_nth if word and not word.isdigit())
