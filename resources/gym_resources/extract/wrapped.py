"""Answers in a wrapper that the prompt asks for, such as ``((42))``: the last one, found in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, get_args

from gym_resources.extract.boxed import last_boxed
from gym_resources.extract.tagged import last_tagged

Format = Literal["fmt_00", "fmt_07", "fmt_15", "fmt_18"]
_BOLD = re.compile(r"\*\*\s*+Answer\s*+:([^*\n]++)\*\*", re.IGNORECASE)


def last_doubled(text: str) -> str | None:
    """The content of the last pair of double parentheses.

    >>> last_doubled("first ((1)), rather ((iron (II)))")
    'iron (II)'
    """
    end = text.rfind("))")
    start = text.rfind("((", 0, end) if end >= 0 else -1
    return text[start + 2 : end] if start >= 0 else None


def last_bold(text: str) -> str | None:
    """What follows ``Answer:`` in the last ``**Answer: …**``."""
    found = _BOLD.findall(text)
    return found[-1] if found else None


WRAPPED: dict[Format, Callable[[str], str | None]] = {
    "fmt_00": last_doubled,
    "fmt_07": last_boxed,
    "fmt_15": lambda text: last_tagged(text, "final_answer"),
    "fmt_18": last_bold,
}
"""By the names of NeMo Gym's ``answer_format``; of its 31 formats these are the published ones."""
FORMATS: tuple[Format, ...] = get_args(Format)
