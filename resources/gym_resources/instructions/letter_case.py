"""Instructions on capital and small letters, and on punctuation marks."""

from __future__ import annotations

from gym_resources.instructions.relation import Relation, meets
from gym_resources.instructions.words import tokens


def capital_words(text: str, *, capital_frequency: int, capital_relation: Relation) -> bool:
    """Less than, or at least, so many words are all capitals."""
    return meets(sum(token.isupper() for token in tokens(text)), capital_relation, capital_frequency)


def title_case(text: str) -> bool:
    """No word is all small, nor a small letter followed by capitals; ``iPhone`` and ``USA`` will do."""
    for token in tokens(text):
        first, rest = token[0], token[1:]
        if first.isalpha() and first.islower() and (not rest or rest.islower() or rest.isupper()):
            return False
    return True


def no_comma(text: str) -> bool:
    """There is no comma."""
    return "," not in text


def no_dot(text: str) -> bool:
    """There is no full stop, nor any other dot."""
    return "." not in text


def no_exclamation(text: str) -> bool:
    """There is no exclamation mark."""
    return "!" not in text


def every_mark(text: str) -> bool:
    """Each of ``. , ! ? ; :`` is there, and an interrobang beside them."""
    if not any(mark in text for mark in ("!?", "?!", "‽")):
        return False
    rest = text.replace("?!", "", 1) if "?!" in text else text.replace("!?", "", 1)
    return all(mark in rest for mark in ".,!?;:")
