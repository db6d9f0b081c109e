"""Rubrics: questions about a reply that a judge answers with yes or no, and what their scores come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec

from gym_resources.judging.labels import label

Aggregation = Literal["mean", "min", "max", "all", "any", "weighted"]


class Item(msgspec.Struct):
    """One question, the answer that passes (YES or NO, in any case), and its weight among the others."""

    question: str
    pass_criteria: str = "YES"
    weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    def __post_init__(self) -> None:
        self.pass_criteria = self.pass_criteria.strip().upper()
        if self.pass_criteria not in ("YES", "NO"):
            raise ValueError(f"'pass_criteria' is YES or NO, not {self.pass_criteria[:40]!r}")


def weighted(scores: Sequence[float], items: Sequence[Item]) -> float:
    """The mean of the scores by their items' weights, of which one is above 0."""
    return sum(item.weight * score for item, score in zip(items, scores, strict=True)) / sum(
        item.weight for item in items
    )


AGGREGATIONS: dict[Aggregation, Callable[[Sequence[float], Sequence[Item]], float]] = {
    "mean": lambda scores, _: sum(scores) / len(scores),
    "min": lambda scores, _: min(scores),
    "max": lambda scores, _: max(scores),
    "all": lambda scores, _: float(all(scores)),
    "any": lambda scores, _: float(any(scores)),
    "weighted": weighted,
}


def yes_or_no(text: str) -> str | None:
    """What a judge says in its last line: the label, else the word YES or NO, that `label` finds there.

    >>> yes_or_no("[[NO]]? No: [[YES]]"), yes_or_no("So: YES."), yes_or_no("YES?\\nPerhaps")
    ('YES', 'YES', None)
    """
    found = label(text, ("[[YES]]", "[[NO]]")) or label(text, ("YES", "NO"))
    return found.strip("[]") if found else None
