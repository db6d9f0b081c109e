"""Answers between tags, such as ``<answer>42</answer>``."""

from __future__ import annotations


def last_tagged(text: str, tag: str) -> str | None:
    """What stands in the last complete pair of tags, stripped; None without one.

    >>> last_tagged("<answer>1</answer> no: <answer> 2 </answer>", "answer")
    '2'
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, end) if end >= 0 else -1
    return text[start + len(tag) + 2 : end].strip() if start >= 0 else None
