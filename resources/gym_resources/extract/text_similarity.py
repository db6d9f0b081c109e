"""How much a text has of a reference: ROUGE-L, chrF and the rate of wrong words.

Letters that Unicode writes in two ways, such as é, are the same in both texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_WORD = re.compile(r"[a-z0-9]+")
ORDER, BETA_SQUARED = 6, 4.0
MOST_WORDS, MOST_WRONG = 2000, 1000
_PIECE = re.compile(r"\S{1,200}|\s+")


def rouge_l(text: str, reference: str) -> float:
    """The F1 of the longest common subsequence of words, 0 to 1; words are letters and digits of ASCII.

    Takes time that grows with the product of both lengths, of which the first `MOST_WORDS` words count.
    Source: Lin 2004; tokens as in the package ``rouge-score``, without its stemmer.

    >>> round(rouge_l("The cat sat here.", "the cat sat"), 3), rouge_l("", "a")
    (0.857, 0.0)
    """
    ours, theirs = (_WORD.findall(composed(one).lower())[:MOST_WORDS] for one in (text, reference))
    row = [0] * (len(theirs) + 1)
    for word in ours:
        before = 0
        for place, other in enumerate(theirs, 1):
            before, row[place] = row[place], before + 1 if word == other else max(row[place], row[place - 1])
    return 2 * row[-1] / (len(ours) + len(theirs)) if row[-1] else 0.0


def right_words(text: str, reference: str) -> float:
    """One less the rate of wrong words (WER), at least 0: the words to insert, delete or replace, over the
    reference's.

    Takes time that grows with the product of both lengths, of which the first `MOST_WRONG` words count.

    >>> right_words("a b c d", "a b x d"), right_words("a b a b", "a b"), right_words("", "a")
    (0.75, 0.0, 0.0)
    """
    ours, theirs = (one.split()[:MOST_WRONG] for one in (text, reference))
    if len(ours) >= 2 * len(theirs):
        return 0.0
    row = list(range(len(theirs) + 1))
    for number, word in enumerate(ours, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(theirs, 1):
            changed = before + (word != other)
            before, row[place] = row[place], min(changed, row[place] + 1, row[place - 1] + 1)
    return max(0.0, 1 - row[-1] / len(theirs))


def chrf(text: str, reference: str) -> float:
    """chrF2 of a sentence, 0 to 1: the F-score of n-grams of up to six characters, spaces left out.

    Orders for which a side is too short do not count. Source: Popović 2015, 2016; sacreBLEU's defaults.

    >>> chrf("Guten Tag", "Guten Tag"), chrf("", "a"), chrf("e\u0301", "\u00e9")
    (1.0, 0.0, 1.0)
    """
    ours, theirs = ("".join(composed(one).split()) for one in (text, reference))
    precision = recall = 0.0
    orders = 0
    for order in range(1, ORDER + 1):
        given, wanted = _grams(ours, order), _grams(theirs, order)
        if not given or not wanted:
            continue
        same = sum((given & wanted).values())
        precision += same / sum(given.values())
        recall += same / sum(wanted.values())
        orders += 1
    if not precision or not recall:
        return 0.0
    precision, recall = precision / orders, recall / orders
    return (1 + BETA_SQUARED) * precision * recall / (BETA_SQUARED * precision + recall)


def composed(text: str) -> str:
    """A text with composed letters.

    It is taken in pieces, because a letter with very many marks takes time that grows with their square.
    """
    return "".join(unicodedata.normalize("NFC", piece) for piece in _PIECE.findall(text))


def _grams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))
