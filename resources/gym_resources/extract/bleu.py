"""BLEU of a sentence and of a whole set, by the rules and words of sacreBLEU.

Words are those of mteval-v13a. Chinese characters are words of their own; so is each character of Japanese,
where sacreBLEU asks a dictionary; Korean, where it does as well, is split as other languages are.
Source: Papineni et al. 2002; Post 2018 (sacreBLEU, Apache-2.0): its defaults, smoothing ``exp``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

ORDER = 4
_LANGUAGE_INDEPENDENT = (
    (re.compile(r"([{-~[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ESCAPED = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_HAN = re.compile(r"([\u2e80-\u2fdf\u3000-\u303f\u31c0-\u31ef\u3200-\u9fbb\uf900-\ufad9\uff00-\uffef])")


def words(text: str, language: str) -> list[str]:
    """The words of a text.

    >>> words("Er zahlte 3.50 Euro, bar.", "de"), words("天気は", "zh"), words("天気は", "ja")
    (['Er', 'zahlte', '3.50', 'Euro', ',', 'bar', '.'], ['天', '気', 'は'], ['天', '気', 'は'])
    """
    if language == "ja":
        return [char for char in text if not char.isspace()]
    if language == "zh":
        text = _HAN.sub(r" \1 ", text)
    for escaped, char in _ESCAPED:
        text = text.replace(escaped, char)
    text = f" {text.replace('-' + chr(10), '')} ".replace("\n", " ")
    for pattern, replacement in _LANGUAGE_INDEPENDENT:
        text = pattern.sub(replacement, text)
    return text.split()


def counts(text: str, reference: str, language: str) -> list[int]:
    """What BLEU is made of, (10,): for each order the n-grams that match, then all that there are; then how
    many words the text and the reference have.
    """
    ours, theirs = words(text, language), words(reference, language)
    found: list[int] = []
    totals: list[int] = []
    for order in range(1, ORDER + 1):
        given = _grams(ours, order)
        found.append((given & _grams(theirs, order)).total())
        totals.append(given.total())
    return [*found, *totals, len(ours), len(theirs)]


def bleu(every: Iterable[Sequence[int]], *, effective_order: bool = False) -> float:
    """BLEU, 0 to 1, of the counts of some sentences together.

    Args:
        effective_order: orders for which the text is too short do not count, as for single sentences.

    >>> round(bleu([counts("the cat sat on", "the cat lay on it", "en")]), 9)
    0.275347657
    """
    sums = [sum(column) for column in zip(*every, strict=True)]
    found, totals, (ours, theirs) = sums[:ORDER], sums[ORDER:-2], sums[-2:]
    if not found[0]:
        return 0.0
    logs: list[float] = []
    smooth = 1.0
    for same, total in zip(found, totals, strict=True):
        if not total:
            if effective_order:
                break
            return 0.0
        smooth *= 1 if same else 2
        logs.append(math.log(same / total if same else 1 / (smooth * total)))
    brevity = min(1.0, math.exp(1 - theirs / ours))
    return brevity * math.exp(sum(logs) / (len(logs) if effective_order else ORDER))


def _grams(text: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[start : start + order]) for start in range(len(text) - order + 1))
