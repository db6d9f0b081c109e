"""What makes an environment a benchmark: the prompt and the score that its authors have published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec


class ScoredRollout(msgspec.Struct, frozen=True):
    """A rollout that has a verdict, as a score sees it.

    Attributes:
        task_index: the rollouts of one row have the same.
        fields: those of its result row that `Benchmark.fields` names; None for one that it lacks.
    """

    task_index: int
    reward: float
    fields: dict[str, Any] = {}


Score = Callable[[Sequence[ScoredRollout]], Mapping[str, float]]
"""Figures by their names, in percent unless the name says otherwise; the first is the one to report."""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """How an environment is run as a published benchmark. Its rows are the source of the split ``benchmark``.

    Attributes:
        prompt: the user's message; ``{field}`` stands for a field of the row, braces are written twice. Empty
            where the rows bring their input.
        system: the system message, in the same way; none if it is empty.
        image: the field of the row whose image, a ``data:`` URL or the address of a file, follows the user's
            message, also that of another prompt (``--prompt``); rows in which it is empty have none.
        score: what the authors report of a run, from its rollouts that have a verdict, of which there is at
            least one.
        fields: the fields of result rows that the score reads.
    """

    prompt: str = ""
    system: str = ""
    image: str = ""
    score: Score
    fields: tuple[str, ...] = ()
