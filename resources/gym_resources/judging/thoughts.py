"""What a model thinks before it speaks, where its engine leaves that in the text."""

from __future__ import annotations

import re

_TAG = re.compile(r"(</?think(?:ing)?>)")


def without_thoughts(text: str) -> str:
    """A text without its thoughts. Those never closed reach to its end, those never opened to its start.

    >>> without_thoughts("<think>No?</think> Yes. <thinking>So"), without_thoughts("Well</think>No.")
    ('Yes.', 'No.')
    """
    if "think" not in text:
        return text.strip()
    parts: list[str] = []
    thinking = False
    for number, piece in enumerate(_TAG.split(text)):
        if number % 2 == 0:
            if not thinking:
                parts.append(piece)
        elif piece[1] == "/":
            if not thinking:
                parts.clear()
            thinking = False
        else:
            thinking = True
    return "".join(parts).strip()
