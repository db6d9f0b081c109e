"""Answers between tags, such as ``<answer>42</answer>``."""

from __future__ import annotations

import re

_SPACE = re.compile(r"\s*")


def last_tagged(text: str, tag: str) -> str | None:
    """The content of the last complete pair of tags, stripped; None without one.

    >>> last_tagged("<answer>1</answer> no: <answer> 2 </answer>", "answer")
    '2'
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, end) if end >= 0 else -1
    return text[start + len(tag) + 2 : end].strip() if start >= 0 else None


def last_pair(text: str, tag: str, *, filled: bool = False) -> str | None:
    """The last pair of tags, found from the left, stripped; None without one.

    Each opening tag is paired with the next closing one, and the text between them is not searched again; so
    an opening tag that is never closed takes in the next pair. Where pairs must be ``filled``, a closing tag
    ends a pair only after a first character that is not a space, even if that is the closing tag's own.

    >>> last_pair("<answer>1</answer> <answer> or <answer>2</answer>", "answer")
    'or <answer>2'
    >>> last_pair("<answer> </answer> no", "answer", filled=True)
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: str | None = None
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        behind = _first_character(text, start) + 1 if filled else start
        end = text.find(closing, behind)
        if end < 0:
            break
        found = text[start:end].strip()
        start = text.find(opening, end + len(closing))
    return found


def _first_character(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return space.end() if space else start
