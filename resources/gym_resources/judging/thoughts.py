"""What a model thinks before it speaks, where its engine leaves that in the text."""

from __future__ import annotations

import re

_TAG = re.compile(r"(</?think(?:ing)?>)")


def without_thoughts(text: str) -> str:
    """A text without its thoughts. Those never opened reach to its start.

    Those never closed reach to its end if nothing is said before them. Else a verdict behind a quotation
    of the tag would be lost, and a label in the quotation would count.

    >>> without_thoughts("<think>No?</think> Yes. <think>No</think>"), without_thoughts("Well</think>No.")
    ('Yes.', 'No.')
    >>> without_thoughts("<think>So"), without_thoughts('"Yes <think>" is wrong: No.')
    ('', '"Yes <think>" is wrong: No.')
    """
    if "think" not in text:
        return text.strip()
    pieces, parts = _TAG.split(text), list[str]()
    thinking, begun = False, 0
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            if not thinking:
                parts.append(piece)
        elif piece[1] == "/":
            if not thinking:
                parts.clear()
            thinking = False
        elif not thinking:
            thinking, begun = True, number
    if thinking and "".join(parts).strip():
        parts += pieces[begun:]
    return "".join(parts).strip()
