"""How much two texts have in common. `ratio` can take time that grows with the square of the texts."""

from __future__ import annotations

from difflib import SequenceMatcher

RUN = 16
_BASE, _PRIME = 1_000_003, (1 << 61) - 1


def ratio(text: str, other: str) -> float:
    """Twice what matches over what both have, 0 to 1, by the standard library's ``SequenceMatcher``.

    >>> ratio("abcd", "bcde"), ratio("", "")
    (0.75, 1.0)
    """
    return 1.0 if text == other else SequenceMatcher(None, text, other).ratio()


def common_words(text: str, other: str) -> float:
    """The share of a text's runs of `RUN` words that the other text has, too; 0 if the text is shorter.

    >>> common_words("to be " * 9, "not to be " + "to be " * 9)
    1.0
    """
    runs, known = _runs(text), set(_runs(other))
    return sum(run in known for run in runs) / len(runs) if runs else 0.0


def _runs(text: str) -> list[tuple[str, ...]]:
    words = text.split()
    return [tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)]


def longest_common(text: str, other: str) -> int:
    """The length of the longest part of a text that the other text has, too, in characters.

    >>> longest_common("the old tower", "an old town")
    8
    """
    shared, least, most = 0, 1, min(len(text), len(other))
    while least <= most:
        size = (least + most) // 2
        if _shares(text, other, size):
            shared, least = size, size + 1
        else:
            most = size - 1
    return shared


def _shares(text: str, other: str, size: int) -> bool:
    """Whether the texts have a part of this size in common. Equal hashes are not believed."""
    places: dict[int, int] = {}
    for place, value in enumerate(_hashes(text, size)):
        places.setdefault(value, place)
    for place, value in enumerate(_hashes(other, size)):
        start = places.get(value)
        if start is not None and text[start : start + size] == other[place : place + size]:
            return True
    return False


def _hashes(text: str, size: int) -> list[int]:
    """The rolling hash of each part of this size."""
    value, found, leaving = 0, list[int](), pow(_BASE, size, _PRIME)
    for place, character in enumerate(text):
        value = (value * _BASE + ord(character)) % _PRIME
        if place >= size:
            value = (value - ord(text[place - size]) * leaving) % _PRIME
        if place >= size - 1:
            found.append(value)
    return found
