"""Comparing a count with a threshold, as instructions word it."""

from __future__ import annotations

from typing import Literal

Relation = Literal["less than", "at least"]


def meets(count: int, relation: Relation, threshold: int) -> bool:
    """Whether ``count`` is less than, or at least, the threshold."""
    return count < threshold if relation == "less than" else count >= threshold
