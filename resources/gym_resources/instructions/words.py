"""Words of a text, by the rules with which instruction checkers count them."""

from __future__ import annotations

import re
import string
from typing import NewType

from gym_resources.instructions.sentences import sentences

PUNCTUATION = string.punctuation
Expression = NewType("Expression", str)
"""A regular expression that comes with a row; most are plain words."""
_SPECIAL = frozenset("\\.^$*+?{}[]|()")
_WORD = re.compile(r"\w+")
_NO_PUNCTUATION = str.maketrans("", "", PUNCTUATION)

_EDGE = "\ue002"  # where a sentence starts or ends
_END = rf"\s*(?={_EDGE})"

_QUOTES_OPEN = (
    (r"([«“‘„]|`+)", r" \1 "),
    (rf'(?<={_EDGE})"', "``"),
    (r"(``)", r" \1 "),
    (r"([ (\[{<])(\"|'{2})", r"\1 `` "),
    (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", "' "),
)
_PUNCTUATION_APART = (
    (rf"([^.{_EDGE}])(\.)([\])}}>\"'»”’ ]*+){_END}", r"\1 \2 \3 "),
    (rf"([:,])([^\d{_EDGE}])", r" \1 \2"),
    (rf"([:,])(?={_EDGE})", r" \1 "),
    (r"\.{2,}", r" \g<0> "),
    (r"[;@#$%&]", r" \g<0> "),
    (r"[\u2012-\u2015]", r" \g<0> "),
    (rf"([^.{_EDGE}])(\.)([\])}}>\"']*+){_END}", r"\1 \2\3 "),
    (r"[?!]", r" \g<0> "),
    (rf"([^'{_EDGE}])' ", r"\1 ' "),
    (r"[*]", r" \g<0> "),
    (r"[\]\[(){}<>]", r" \g<0> "),
    (r"--", " -- "),
    (_EDGE, f" {_EDGE} "),
)
_QUOTES_CLOSE = (
    (r"([»”’])", r" \1 "),
    (r"''|\"", " '' "),
    (r"\s+", " "),
    (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
    (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
)
_CONTRACTIONS = (
    (r"(?i)\b(can)(not)\b", r" \1 \2 "),
    (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
    (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
    (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
    (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
    (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
    (r"(?i)\b(more)('n)\b", r" \1 \2 "),
    (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
    (r"(?i) ('t)(is|was)\b", r" \1 \2 "),
)
_STEPS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (*_QUOTES_OPEN, *_PUNCTUATION_APART, *_QUOTES_CLOSE, *_CONTRACTIONS)
)


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, as the Penn Treebank splits them, sentence by sentence.

    A full stop stands alone only at the end of a sentence; ``don't`` is two; a double quote becomes two
    single ones. Source: R. MacIntyre's tokeniser of the Penn Treebank, with NLTK's additions.

    >>> tokens('She can\\'t pay $3.50, e.g. in U.S. cash.')
    ['She', 'ca', "n't", 'pay', '$', '3.50', ',', 'e.g', '.', 'in', 'U.S.', 'cash', '.']
    """
    return _split(sentences(text.replace(_EDGE, "")))


def _split(found: list[str]) -> list[str]:
    """The tokens of sentences, all at once: one replacement in thousands of them is as fast as in a few."""
    text = f"{_EDGE}{_EDGE.join(found)}{_EDGE}"
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    return text.replace(_EDGE, " ").split()


def word_tokens(text: str) -> list[str]:
    """`tokens` without those that are punctuation only."""
    return [token for token in tokens(text) if any(char.isalnum() for char in token)]


def count_words(text: str) -> int:
    """The number of runs of letters, digits and underscores: ``don't`` counts as two."""
    return len(_WORD.findall(text))


def plain_words(text: str) -> list[str]:
    """The words between white space after ASCII punctuation is removed: ``don't`` is ``dont``."""
    return text.translate(_NO_PUNCTUATION).split()


def trimmed(word: str) -> str:
    """A word without the punctuation around it."""
    return word.strip(PUNCTUATION + " ")


def occurrences(text: str, phrase: str) -> int:
    """How often a phrase occurs in a text, in any case, also as a part of words."""
    return matches(text, Expression(re.escape(phrase)))


def matches(text: str, expression: Expression) -> int:
    """How often an expression of a row matches in a text, in any case."""
    return sum(1 for _ in re.finditer(expression, text, re.IGNORECASE))


def is_literal(expression: Expression) -> bool:
    """Whether it is a literal, so that no text makes it backtrack."""
    return _SPECIAL.isdisjoint(expression)


def has_word(text: str, word: str, *, ignore_case: bool = True) -> bool:
    """Whether a word occurs in a text, not as a part of another one."""
    return count_word(text, word, ignore_case=ignore_case) > 0


def count_word(text: str, word: str, *, ignore_case: bool = True) -> int:
    """How often a word occurs in a text, not as a part of another one."""
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE if ignore_case else 0))
