"""Rewards out of pairwise comparisons: which pairs, what a judge said of each, and what that comes to.

Source: the rule of NeMo Gym's ``genrm_compare``. Different on purpose: what cannot be read is no neutral
score; that comparison is missing, as is one with scores off the scale. The scores are those with which an
answer ends; there, the first ones in a fence count, also if they are quoted from a reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, cast

import msgspec
from gym_runtime.statistics import deviation, mean

from gym_resources.extract.jsons import object_at_the_end

Strategy = Literal["circular", "all_pairs"]

SCORES, RANKINGS = (1.0, 5.0), (1.0, 6.0)

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# A long text may have a quarter of a million marks. So each pattern begins with a character that is searched
# for quickly, and has an empty group, the only thing that `findall` then makes of each mark.
_LINE_MARKS = re.compile(r"\n()(?:#{1,6}(?=\s)|[ \t]*+(?:[-*+]|\d{1,9}[.)])(?=[ \t]))")
_BOLD, _EMOJI = r"\*\*[^*\n]++\*\*|__[^_\n]++__", r"[\u2600-\u27bf\U0001f300-\U0001faff]"
_ASCII_MARKS = re.compile(f"(?:{_BOLD})()")
_MARKS = re.compile(f"(?:{_BOLD}|{_EMOJI})()")


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison has to know of a reply.

    Attributes:
        reasoning_chars: the length of its reasoning, in characters.
        style_density: marks of style per character, outside of code.
    """

    answer: str
    reasoning_chars: int = 0
    style_density: float = 0.0


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge said of a pair: two scores, and which is better (1 the first by far … 6 the second)."""

    score_1: float
    score_2: float
    ranking: float

    @property
    def tied(self) -> bool:
        return self.score_1 == self.score_2

    def untied(self) -> tuple[float, float]:
        """The two scores; where they are equal, the ranking moves them apart."""
        lead = 3.5 - self.ranking if self.tied else 0.0
        return self.score_1 + lead, self.score_2 - lead


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of two candidates, by their places in the group."""

    response_i: int
    response_j: int
    judge_idx: int
    scores: Scores

    def fields(self) -> dict[str, Any]:
        """As it stands in a row."""
        return {
            "response_i": self.response_i,
            "response_j": self.response_j,
            "judge_idx": self.judge_idx,
            **msgspec.structs.asdict(self.scores),
        }


class Adjustments(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to the mean scores; all of it is 0 by default."""

    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = 0.2
    reasoning_length: float = 0.0
    answer_length: float = 0.0
    style: float = 0.0


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's reward: ``base``, its mean score, plus ``bonus`` plus ``adjustment``."""

    base: float
    bonus: float
    adjustment: float

    @property
    def total(self) -> float:
        return self.base + self.bonus + self.adjustment


def pairs(count: int, strategy: Strategy) -> list[tuple[int, int]]:
    """The pairs that are compared: each candidate with the next one, or each with every other.

    >>> pairs(3, "circular"), pairs(3, "all_pairs"), pairs(2, "circular")
    ([(0, 1), (1, 2), (2, 0)], [(0, 1), (0, 2), (1, 2)], [(0, 1), (1, 0)])
    """
    if strategy == "all_pairs":
        return list(combinations(range(count), 2))
    return [(one, (one + 1) % count) for one in range(count)]


def style_density(text: str) -> float:
    """Headings, list items, bold spans and emojis per character, outside of code blocks."""
    plain = _CODE.sub("", text)
    if not plain:
        return 0.0
    spans = _ASCII_MARKS if plain.isascii() else _MARKS
    return (len(_LINE_MARKS.findall(f"\n{plain}")) + len(spans.findall(plain))) / len(plain)


def read_scores(text: str, *, default_score: float = 3.0, default_ranking: float = 3.5) -> Scores | None:
    """What a judge's text says: the JSON object at its end, in a fence or not.

    A key that is missing has its default; a number may be written as text. None if all keys are missing, or
    one is off its scale.

    >>> read_scores('Well. {"score_1": 4, "score_2": 2}')
    Scores(score_1=4.0, score_2=2.0, ranking=3.5)
    """
    found = object_at_the_end(text)
    if found is not None:
        inner = found.get("overall")
        given = cast("Mapping[str, object]", inner) if isinstance(inner, dict) else found
        known = [name for name in Scores.__struct_fields__ if name in given]
        values = [
            _on_scale(given.get("score_1", default_score), SCORES),
            _on_scale(given.get("score_2", default_score), SCORES),
            _on_scale(given.get("ranking", default_ranking), RANKINGS),
        ]
        first, second, ranking = values
        if known and first is not None and second is not None and ranking is not None:
            return Scores(score_1=first, score_2=second, ranking=ranking)
    return None


def _on_scale(value: object, scale: tuple[float, float]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if scale[0] <= number <= scale[1] else None


def mean_scores(count: int, comparisons: Sequence[Compared]) -> list[float | None]:
    """Each candidate's mean over its comparisons; None for one that has none."""
    scores: list[list[float]] = [[] for _ in range(count)]
    for one in comparisons:
        for place, score in zip((one.response_i, one.response_j), one.scores.untied(), strict=True):
            scores[place].append(score)
    return [mean(each) for each in scores]


def rewards(
    bases: Sequence[float | None], features: Sequence[Features], adjust: Adjustments
) -> list[Reward | None]:
    """The rewards of a group, bonuses and penalties included; None for a candidate without a score."""
    judged = [place for place, base in enumerate(bases) if base is not None]
    scores = [base for base in bases if base is not None]
    said = [features[place] for place in judged]
    reasoning: list[float] = [one.reasoning_chars for one in said]
    answers: list[float] = [len(one.answer) for one in said]
    bonus = [0.0] * len(said)
    for lengths, size in ((reasoning, adjust.reasoning_bonus), (answers, adjust.answer_bonus)):
        winner = _shortest_of_the_best(scores, lengths, adjust.top_percentile)
        if winner is not None:
            bonus[winner] += size
    parts = [
        _relative(reasoning, adjust.reasoning_length),
        _relative(answers, adjust.answer_length),
        _relative([one.style_density for one in said], adjust.style),
    ]
    found: list[Reward | None] = [None] * len(bases)
    for at, place in enumerate(judged):
        found[place] = Reward(base=scores[at], bonus=bonus[at], adjustment=sum(part[at] for part in parts))
    return found


def _shortest_of_the_best(scores: Sequence[float], lengths: Sequence[float], percentile: float) -> int | None:
    """Where the shortest text that is not empty stands, if its score is among the best."""
    there = [place for place, length in enumerate(lengths) if length]
    if not there:
        return None
    needed = sorted(scores, reverse=True)[max(0, math.floor(len(scores) * percentile) - 1)]
    shortest = min(there, key=lengths.__getitem__)
    return shortest if scores[shortest] >= needed else None


def _relative(values: Sequence[float], coefficient: float) -> list[float]:
    """What is added for small values and taken off for large ones; over the group it comes to 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not coefficient or low == high:
        return [0.0] * len(values)
    weights = [1.0 - (value - low) / (high - low) for value in values]
    center = mean(weights) or 0.0
    return [coefficient * (weight - center) for weight in weights]


def group_metrics(bases: Sequence[float | None], comparisons: Sequence[Compared]) -> dict[str, float]:
    """What NeMo Gym's comparison says of a whole group."""
    scores = [base for base in bases if base is not None]
    tied = sum(one.scores.tied for one in comparisons)
    return {
        "mean_individual_score": mean(scores) or 0.0,
        "std_individual_score": deviation(scores, ddof=0) or 0.0,
        "tiebreak_usage_rate": tied / len(comparisons) if comparisons else 0.0,
    }
