"""Instructions on how a text, its sentences and its paragraphs start and end."""

from __future__ import annotations

import re
from itertools import pairwise

from gym_resources.instructions.sentences import sentences, sentences_by_rules
from gym_resources.instructions.words import PUNCTUATION, tokens

_MARKS = re.compile(r"[^\w\s]")


def end_phrase(text: str, *, end_phrase: str) -> bool:
    """The text ends with a phrase, in any case, if a quote does not follow it."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def in_quotes(text: str) -> bool:
    """The whole text is in double quotes."""
    text = text.strip()
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def first_word(text: str, *, first_word: str) -> bool:
    """The text starts with a word, in any case."""
    return (
        text.split(maxsplit=1)[:1] != [] and text.split(maxsplit=1)[0].lower() == first_word.strip().lower()
    )


def last_word(text: str, *, last_word: str) -> bool:
    """The text ends with a word, in any case; punctuation does not count."""
    return _last_of(text) == last_word.strip().lower()


def first_word_of_sentences(text: str, *, first_word: str | list[str]) -> bool:
    """Each sentence starts with a word, in any case."""
    wanted = first_word if isinstance(first_word, str) else first_word[0]
    starts = [sentence.split(maxsplit=1)[:1] for sentence in sentences_by_rules(text)]
    return all(start and start[0].lower() == wanted.strip().lower() for start in starts)


def last_word_of_sentences(text: str, *, last_word: str | list[str]) -> bool:
    """Each sentence ends with a word, in any case; punctuation does not count."""
    wanted = last_word if isinstance(last_word, str) else last_word[0]
    return all(_last_of(sentence) == wanted.strip().lower() for sentence in sentences_by_rules(text))


def _last_of(text: str) -> str | None:
    """The last word in small letters, without punctuation; None without a word."""
    words = text.rsplit(maxsplit=1)
    return _MARKS.sub("", words[-1]).lower() if words else None


def same_first_and_last_word(text: str) -> bool:
    """The first and the last token are the same, in any case; a full stop is a token."""
    parts = tokens(text)
    return len(parts) > 1 and parts[0].lower() == parts[-1].lower()


def sentences_linked(text: str) -> bool:
    """The last word of each sentence is the first of the next, in any case."""
    found = sentences(text)
    return all(_linked(one, other) for one, other in pairwise(found))


def _linked(sentence: str, following: str) -> bool:
    last = sentence.rstrip(PUNCTUATION + " ").split()
    first = following.lstrip(PUNCTUATION + " ").split()
    return bool(last and first) and last[-1].lower() == first[0].lower()


def paragraphs_closed(text: str) -> bool:
    """Each line ends with the word it starts with, in any case."""
    lines = [line.strip().lower().strip(PUNCTUATION + " ").split() for line in text.split("\n")]
    return all(words[0] == words[-1] for words in lines if words)
