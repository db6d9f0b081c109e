"""What of a row's milestones a conversation reaches, and in which order.

After each message to the user and each call there is a moment: the tables as they are then, and what was said
or called. A milestone is alike to a moment by the geometric mean of its constraints. Milestones are matched
with moments so that the mean of their similarities is largest, each later than all that it comes ``after``.
Source: Lu et al. 2024, arXiv:2408.04682, section 3; the code is our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import ResourceError

from gym_resources.extract.text_similarity import rouge_l
from gym_resources.phone_sandbox.pocket_device import Record, Tables

Measure = Literal["snapshot", "addition", "removal", "update", "guardrail"]
How = Literal["exact", "rouge_l", "contains", "close"]
MOST_STEPS, MOST_CHARACTERS, TOLERANCE = 200_000, 2000, 0.1
MET = 1.0 - 1e-9
DEFAULT: dict[str, How] = {"content": "rouge_l"}


class Moment(msgspec.Struct, frozen=True):
    """The tables at one time; ``said`` and ``calls`` have at most one record: what happened then."""

    tables: Tables


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a table should be.

    Attributes:
        target: the records to compare: with the whole table (``snapshot``), or with what was added, removed
            or changed since the ``reference``; none for ``guardrail``, which wants nothing to have changed.
        similarity: how a field is compared, where not by its default: texts of ``content`` by ROUGE-L, all
            others exactly.
        reference: a milestone that this one comes after; the beginning if it is left out.
    """

    table: Literal["settings", "contacts", "messages", "reminders", "said", "calls"]
    target: Annotated[list[Record], msgspec.Meta(max_length=8)] = []
    measure: Measure = "snapshot"
    similarity: dict[str, How] = {}
    reference: int | None = None

    def alike(self, moment: Moment, reference: Moment) -> float:
        """How much a table at a moment is as it should be, 0 to 1."""
        now, before = moment.tables[self.table], reference.tables[self.table]
        if self.measure == "snapshot":
            return self._rows(now)
        added = [one for one in now if one not in before]
        gone = [one for one in before if one not in now]
        if self.measure == "guardrail":
            return float(not added and not gone)
        if self.measure == "addition":
            return 0.0 if gone else self._rows(added)
        if self.measure == "removal":
            return 0.0 if added else self._rows(gone)
        return self._rows(added) if len(added) == len(gone) else 0.0

    def _rows(self, rows: Sequence[Record]) -> float:
        if len(rows) != len(self.target) or not rows:
            return 0.0
        return paired([[self._row(row, wanted) for wanted in self.target] for row in rows]) / len(rows)

    def _row(self, row: Record, wanted: Record) -> float:
        hows: dict[str, How] = {
            name: self.similarity.get(name) or DEFAULT.get(name, "exact") for name in wanted
        }
        return mean([field_alike(row.get(name), value, hows[name]) for name, value in wanted.items()])


class Milestone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that must hold at some time.

    Attributes:
        after: the milestones, by their places, than which it must be later.
    """

    constraints: Annotated[list[Constraint], msgspec.Meta(min_length=1, max_length=10)]
    after: list[int] = []

    def earlier(self) -> set[int]:
        """The milestones that must be matched before this one."""
        return {*self.after, *(one.reference for one in self.constraints if one.reference is not None)}


def problem(milestones: Sequence[Milestone]) -> str:
    """Why these cannot be matched in any order; empty if they can. A milestone names earlier ones only."""
    for place, one in enumerate(milestones):
        wrong = [number for number in one.earlier() if not 0 <= number < place]
        if wrong:
            return f"milestone {place} names milestone {wrong[0]}, which does not stand before it"
    return ""


def matched(milestones: Sequence[Milestone], moments: Sequence[Moment]) -> list[float]:
    """The similarity of each milestone in the best match.

    Raises:
        ResourceError: there are too many ways to match them.
    """
    steps = 0
    needed = [
        frozenset(number for later in milestones[place:] for number in later.earlier() if number < place)
        for place in range(len(milestones) + 1)
    ]

    @cache
    def alike(place: int, moment: int, references: tuple[int, ...]) -> float:
        pairs = zip(milestones[place].constraints, references, strict=True)
        return mean([one.alike(moments[moment], moments[reference]) for one, reference in pairs])

    @cache
    def best(place: int, known: tuple[tuple[int, int], ...]) -> tuple[float, tuple[float, ...]]:
        nonlocal steps
        if place == len(milestones):
            return 0.0, ()
        at = dict(known)
        milestone = milestones[place]
        first = max((at[number] for number in milestone.earlier()), default=0) + 1
        references = tuple(0 if one.reference is None else at[one.reference] for one in milestone.constraints)
        found: tuple[float, tuple[float, ...]] = (-1.0, ())
        for moment in range(first, max(len(moments), first) + 1):
            steps += 1
            if steps > MOST_STEPS:
                raise ResourceError("its milestones can be matched in too many ways", stage="verify")
            # Past the last moment stands what was not reached; what comes after it is not reached either.
            reached = moment < len(moments) and max(references, default=0) < len(moments)
            own = alike(place, moment, references) if reached else 0.0
            if not own and moment < len(moments):
                continue
            at[place] = moment
            kept = tuple((number, at[number]) for number in sorted(needed[place + 1]))
            rest, scores = best(place + 1, kept)
            found = max(found, (own + rest, (own, *scores)))
        return found

    return list(best(0, ())[1])


def hit(minefields: Sequence[Milestone], moments: Sequence[Moment]) -> bool:
    """Whether a minefield holds in full at some moment after the first, the beginning."""
    start, *later = moments
    return any(
        mean([part.alike(moment, start) for part in mine.constraints]) >= MET
        for mine in minefields
        for moment in later
    )


def field_alike(value: Any, wanted: Any, how: How) -> float:
    """How much a value of a field is as wanted, 0 to 1."""
    if how == "exact" or wanted is None:
        return float(value == wanted and isinstance(value, bool) == isinstance(wanted, bool))
    if how == "close":
        numbers = isinstance(value, int | float) and isinstance(wanted, int | float)
        return float(numbers and abs(value - wanted) <= TOLERANCE * max(1.0, abs(wanted)))
    text, other = str(value)[:MOST_CHARACTERS], str(wanted)
    return float(other.casefold() in text.casefold()) if how == "contains" else rouge_l(text, other)


def paired(scores: Sequence[Sequence[float]]) -> float:
    """The largest sum of scores of pairs, each row with a column of its own; as many rows as columns.

    >>> paired([[1.0, 0.75], [0.5, 0.0]])
    1.25
    """
    best = {0: 0.0}  # of the columns that are taken, as bits
    for row in scores:
        after: dict[int, float] = {}
        for taken, total in best.items():
            for column, score in enumerate(row):
                if not taken >> column & 1:
                    key = taken | 1 << column
                    after[key] = max(after.get(key, 0.0), total + score)
        best = after
    return max(best.values())


def mean(parts: Sequence[float]) -> float:
    """The geometric mean; 1 of nothing.

    >>> mean([1.0, 0.25]), mean([1.0, 0.0])
    (0.5, 0.0)
    """
    return math.prod(parts) ** (1 / len(parts)) if parts else 1.0
