"""Where sentences end, by the two rules that instruction checkers use.

`sentences` follows Punkt as trained on English newspapers: a full stop ends a sentence unless it belongs to
an abbreviation or an ellipsis and no word that opens sentences follows, to an initial before a name, to a
letter that Punkt lists as an abbreviation, or to a number before a small letter. The abbreviations are
Punkt's; short lists of frequent words replace Punkt's trained model of names and of words that open
sentences, so results may differ before rare words. `sentences_by_rules` follows the fixed rules of Google's
IFEval. Both take linear time.
Sources: Kiss & Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection", as in NLTK's Punkt;
github.com/google-research/google-research, ``instruction_following_eval`` (Apache-2.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from gym_resources.instructions.vocabulary import ABBREVIATIONS, COMMON_WORDS, STARTERS

_INNER = """)";}]*:@'({[!?‘’“”«»"""  # characters that cannot be within a word
_NOT_WORD = f"[{re.escape(_INNER)}]"
_MULTIPLE = r"-{2,}|\.{2,}"
_TOKEN = re.compile(
    rf"""{_MULTIPLE}|[^("`{{\[:;&#*@)}}\]\-,\s]\S*?(?=\s|$|{_NOT_WORD}|{_MULTIPLE}|,(?=$|\s|{_NOT_WORD}|{_MULTIPLE}))|\S"""
)
_CHUNK = re.compile(r"\S+")
_ENDS = frozenset(".?!")
_CLOSING = re.compile(r"""["')\]}‘’“”«»]+(?:\s+|(?=--)|$)""", re.MULTILINE)
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
_INITIAL = re.compile(r"[^\W\d]\.")


def sentences(text: str) -> list[str]:
    """The sentences of a text, as Punkt finds them; quotes and brackets that close stay with theirs.

    >>> sentences('Mr. Low met J. Kay. "Fine." They had 3.5 kg... of it! ok')
    ['Mr. Low met J. Kay.', '"Fine."', 'They had 3.5 kg... of it!', 'ok']
    """
    found: list[str] = []
    carried = 0
    spans = list(_spans(text))
    for index, (start, stop) in enumerate(spans):
        start += carried
        carried = 0
        following = spans[index + 1] if index + 1 < len(spans) else None
        closing = following and _CLOSING.match(text, *following)
        if closing:
            stop = closing.start() + len(closing[0].rstrip())
            carried = closing.end() - closing.start()
        if text[start:stop]:
            found.append(text[start:stop])
    return found


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence starts and stops, before closing quotes are reassigned."""
    start = 0
    chunks = list(_CHUNK.finditer(text))
    for index, chunk in enumerate(chunks):
        following = chunks[index + 1] if index + 1 < len(chunks) else None
        for end in _ends(chunk[0], following is not None):
            at_chunk_end = following is not None and end == len(chunk[0])
            context = f"{chunk[0]} {following[0]}" if at_chunk_end and following else chunk[0][: end + 1]
            if _breaks(_TOKEN.findall(context)):
                yield start, chunk.start() + end
                start = following.start() if at_chunk_end and following else chunk.start() + end
    yield start, len(text.rstrip())


def _ends(chunk: str, has_following: bool) -> list[int]:
    """The characters of a chunk after which a sentence may end: its first, and the last that qualifies."""
    last = len(chunk) if has_following and chunk[-1] in _ENDS else 0
    index = len(chunk) - 1
    while not last and index > 0:
        if chunk[index - 1] in _ENDS and chunk[index] in _INNER:
            last = index
        index -= 1
    leading = len(chunk) > 1 and chunk[0] in _ENDS and chunk[1] in _INNER
    return [end for end in ((1, last) if leading and last != 1 else (last,)) if end]


def _breaks(tokens: list[str]) -> bool:
    """Whether a sentence ends at any of these tokens but the last."""
    return any(_ends_sentence(token, following) for token, following in pairwise(tokens))


def _ends_sentence(token: str, following: str) -> bool:
    if token in _ENDS:
        return True
    if not token.endswith("."):
        return False
    word, follower = token[:-1].lower(), following.lower().rstrip(".")
    capital, goes_on = following[0].isupper(), following[0].islower() or following in ";:,.!?"
    if _INITIAL.fullmatch(token):
        name = capital and follower not in COMMON_WORDS
        return not (word in ABBREVIATIONS or goes_on or name)
    if token.endswith("..") or _abbreviates(word):
        return capital and follower in STARTERS
    if _NUMBER.fullmatch(token):
        return not goes_on
    return True


def _abbreviates(word: str) -> bool:
    return word in ABBREVIATIONS or word.rpartition("-")[2] in ABBREVIATIONS


_DOT, _STOP = "\ue000", "\ue001"  # a full stop that ends no sentence, and the end of a sentence
_FIRST = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|That\s|This\s"
    r"|Wherever)"
)


def _protect(dots: re.Match[str]) -> str:
    return _DOT * len(dots[0]) + _STOP


_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Mr|St|Mrs|Ms|Dr)\.", rf"\1{_DOT}"),
        (r"\.(com|net|org|io|gov|edu|me)", rf"{_DOT}\1"),
        (r"([0-9])\.([0-9])", rf"\1{_DOT}\2"),
        (r"\.{2,}", _protect),
        (r"Ph\.D\.", f"Ph{_DOT}D{_DOT}"),
        (r"\s([A-Za-z])\. ", rf" \1{_DOT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_FIRST}", rf"\1{_STOP} \2"),
        (r"([A-Za-z])\.([A-Za-z])\.([A-Za-z])\.", rf"\1{_DOT}\2{_DOT}\3{_DOT}"),
        (r"([A-Za-z])\.([A-Za-z])\.", rf"\1{_DOT}\2{_DOT}"),
        (rf" (Inc|Ltd|Jr|Sr|Co)\. {_FIRST}", rf" \1{_STOP} \2"),
        (r" (Inc|Ltd|Jr|Sr|Co)\.", rf" \1{_DOT}"),
        (r" ([A-Za-z])\.", rf" \1{_DOT}"),
        (r"\.”", "”."),
        (r'\."', '".'),
        (r'!"', '"!'),
        (r'\?"', '"?'),
        (r"([.?!])", rf"\1{_STOP}"),
    )
)


def sentences_by_rules(text: str) -> list[str]:
    """The sentences of a text by IFEval's fixed rules; line breaks mean nothing.

    >>> sentences_by_rules('Dr. Low paid 3.5 pounds. "Why?" He left')
    ['Dr. Low paid 3.5 pounds.', '"Why"?', 'He left']
    """
    text = f" {text}  ".replace("\n", " ").replace(_DOT, "").replace(_STOP, "")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    found = [sentence.strip() for sentence in text.replace(_DOT, ".").split(_STOP)]
    return found if found[-1] else found[:-1]
