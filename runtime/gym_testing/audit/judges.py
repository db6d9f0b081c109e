"""Judges in an audit: the models that are named answer in their roles, scripts in all others.

A judge's agreement with itself is the share of its verdicts on the same reply that are the most frequent one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from gym_runtime import Role
from gym_runtime.environment import Asker, Scripted, ScriptedAnswers
from msgspec import Raw

from gym_testing.audit.intervals import wilson

_decode_item = msgspec.json.Decoder(dict[str, Any]).decode


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often judges say the same of the same reply.

    Attributes:
        models: ``PROVIDER/NAME`` by role.
        replies: that a judge decided, and that were judged at least twice.
        verdicts: on these; an answer without a verdict does not count.
        agreed: verdicts that are the most frequent one of their reply.
        unanimous: replies whose verdicts are all the same.
        low, high: the 95 % interval of the share of ``agreed`` (Wilson), for these replies; None without any.
    """

    models: dict[str, str]
    replies: int
    verdicts: int
    agreed: int
    unanimous: int
    low: float | None
    high: float | None


class NamedJudge(msgspec.Struct, frozen=True):
    """A model in a role, and its name: ``PROVIDER/NAME``."""

    name: str
    ask: Asker


class NamedJudges(ScriptedAnswers):
    """Answers of named models in some roles, and of a script in the others.

    Args:
        answers: the script's.
        named: the models by their roles.
    """

    def __init__(self, answers: Mapping[str, Sequence[Scripted]], named: Mapping[str, Asker]) -> None:
        super().__init__({**dict.fromkeys(named, ()), **answers})
        self._named = named

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        asker = self._named.get(role.name)
        if asker is None:
            return await super().__call__(role, params, items)
        self.asked.append((role.name, [_decode_item(item) for item in items]))
        return await asker(role, params, items)


def agreement(models: Mapping[str, str], rewards: Iterable[Sequence[float]]) -> Agreement:
    """The agreement of judges, of the rewards of each reply.

    >>> found = agreement({"judge": "openai/m"}, [[1.0] * 16 + [0.0] * 4, [0.0, 0.0], [1.0]])
    >>> found.replies, found.verdicts, found.agreed, found.unanimous
    (2, 22, 18, 1)
    """
    counts = [Counter(one) for one in rewards if len(one) > 1]
    verdicts = sum(one.total() for one in counts)
    agreed = sum(max(one.values()) for one in counts)
    low, high = wilson(agreed, verdicts) or (None, None)
    return Agreement(
        models=dict(models),
        replies=len(counts),
        verdicts=verdicts,
        agreed=agreed,
        unanimous=sum(len(one) == 1 for one in counts),
        low=low,
        high=high,
    )
