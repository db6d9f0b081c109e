"""Instructions on how many words, letters, sentences and paragraphs a text has."""

from __future__ import annotations

import re

from gym_resources.instructions.relation import Relation, meets
from gym_resources.instructions.sentences import sentences, sentences_by_rules
from gym_resources.instructions.words import count_words, tokens, trimmed

_DIVIDER = re.compile(r"\*\*\*")
_LETTER = re.compile(r"[a-zA-Z]")
_LOWER_WORD = re.compile(r"\b[a-z]+\b")


def number_sentences(text: str, *, num_sentences: int, relation: Relation) -> bool:
    """There are less than, or at least, so many sentences."""
    return meets(len(sentences(text)), relation, num_sentences)


def number_words(text: str, *, num_words: int, relation: Relation) -> bool:
    """There are less than, or at least, so many words."""
    return meets(count_words(text), relation, num_words)


def word_range(text: str, *, min_words: int, max_words: int) -> bool:
    """The number of words is in a range, both ends included."""
    return min_words <= count_words(text) <= max_words


def unique_words(text: str, *, n: int) -> bool:
    """There are at least so many different words, in any case and without the punctuation around them."""
    return len({trimmed(word) for word in text.lower().split()}) >= n


def all_unique(text: str) -> bool:
    """No token comes twice, punctuation included; case counts."""
    parts = tokens(text)
    return len(parts) == len(set(parts))


def lowercase_words(text: str, *, n: int) -> bool:
    """There are at most so many words of small ASCII letters."""
    return len(_LOWER_WORD.findall(text)) <= n


def letters(text: str, *, n: int, relation: Relation) -> bool:
    """There are less than, or at least, so many ASCII letters."""
    return meets(len(_LETTER.findall(text)), relation, n)


def divided_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """There are so many paragraphs with ``***`` between them; only the first and last may be empty."""
    return _count_parts(_DIVIDER.split(text)) == num_paragraphs


def two_divided_paragraphs(text: str) -> bool:
    """There are two paragraphs with ``***`` between them."""
    return divided_paragraphs(text, num_paragraphs=2)


def two_paragraphs(text: str) -> bool:
    """There are two paragraphs with one empty line between them."""
    return _count_parts(text.split("\n\n")) == 2


def _count_parts(parts: list[str]) -> int | None:
    """How many parts are not empty; None if an inner one is empty."""
    if not all(part.strip() for part in parts[1:-1]):
        return None
    return sum(bool(part.strip()) for part in parts)


def nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """There are so many paragraphs with empty lines between them, and the n-th starts with a word."""
    paragraphs = text.split("\n\n")
    count = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    if count != num_paragraphs or not 0 < nth_paragraph <= count:
        return False
    start = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    word = re.split(r"[.,?!'\"]", start[0].lstrip("'").lstrip('"'), maxsplit=1)[0] if start else None
    return word is not None and word.lower() == first_word.lower()


def composition(text: str, *, n_sent: int, n_words: int) -> bool:
    """Three paragraphs with ``***`` between them (not ``* * *``, for which the instruction asks), of so many
    sentences each, of so many tokens each, punctuation included."""
    paragraphs = _DIVIDER.split(text)
    return len(paragraphs) == 3 and all(
        [len(tokens(sentence)) for sentence in sentences_by_rules(paragraph)] == [n_words] * n_sent
        for paragraph in paragraphs
    )
