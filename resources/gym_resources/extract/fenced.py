"""Code between Markdown's fences of three backticks."""

from __future__ import annotations

import re
from typing import NamedTuple

FENCE = "```"
_LABEL = re.compile(r"[ \t]*([\w+#.-]*)[ \t]*(?:\r?\n|$)")
_FIRST_WORD = re.compile(r"[ \t]*([\w+#.-]+)\s")


class Block(NamedTuple):
    """What stands between two fences, and the language behind the first, in lower case; empty if none."""

    language: str
    code: str


def fenced(text: str, languages: tuple[str, ...] = ()) -> list[Block]:
    """All blocks in order. One that is never closed is none: the text was cut off.

    A block on a single line (````` ```sql SELECT 1``` `````) has one of ``languages``, or none.

    >>> fenced("Try ```sql\\nSELECT 1\\n```.")
    [Block(language='sql', code='SELECT 1\\n')]
    """
    parts = text.split(FENCE)
    return [_block(body, languages) for body in parts[1 : len(parts) - 1 : 2]]


def last_fenced(text: str, *languages: str) -> str | None:
    """The code of the last block in one of these languages, or of the last block of all if there is none."""
    blocks = fenced(text, languages)
    preferred = [block for block in blocks if block.language in languages]
    return (preferred or blocks)[-1].code if blocks else None


def _block(body: str, languages: tuple[str, ...]) -> Block:
    label = _LABEL.match(body)
    if label is None:
        label = _FIRST_WORD.match(body)
        if label is None or label[1].lower() not in languages:
            return Block("", body)
    return Block(label[1].lower(), body[label.end() :])
