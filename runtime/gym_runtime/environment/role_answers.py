"""Answers of models in roles that are there already: recorded in a row, or written by hand.

Re-verification takes the recorded ones, so that a judge is not asked and paid again. The contract and an
author's tests take scripted ones, which may also be failures.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime import clock
from gym_runtime.environment.roles import Asker, Models, Role, RoleLog, models_of, question_digest
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ModelUnavailable, TaskError
from gym_runtime.messages.calls import RoleAnswer

_decode_item = msgspec.json.Decoder(dict[str, Any]).decode

Scripted = str | Mapping[str, Any] | Exception
"""A text, a whole response object, or what is raised instead of an answer."""


class RecordedAnswers:
    """Answers each question as it was answered before; the same question several times in the same order."""

    def __init__(self, answers: Sequence[RoleAnswer]) -> None:
        self._answers: defaultdict[str, deque[Raw]] = defaultdict(deque)
        self.roles = frozenset(answer.role for answer in answers)
        for answer in answers:
            self._answers[answer.digest].append(answer.response)

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        found = self._answers[question_digest(role.name, params, items)]
        if not found:
            raise TaskError(
                f"the row holds no answer of role '{role.name}' to what it is asked now: the prompt, the "
                f"sampling or the rule changed since; ask a model again with --role {role.name}=PROVIDER/NAME"
            )
        # The last one stays: a verification that was repeated asks again.
        return found.popleft() if len(found) > 1 else found[0]

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; of the optional ones those that were asked."""
        return models_of(roles, lambda role: role.name in self.roles, self)


class RoleAnswers:
    """Answers of some roles by models, of the others as they were recorded.

    Args:
        sampling: what the recorded run said of each role's.

    Attributes:
        log: what was answered.
        asked: a model was asked.
    """

    def __init__(
        self,
        recorded: RecordedAnswers,
        models: Mapping[str, Asker],
        sampling: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.log = RoleLog()
        self.asked = False
        self._recorded = recorded
        self._models = models
        self._sampling = sampling

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        started_s = clock.monotonic()
        model = self._models.get(role.name)
        self.asked = self.asked or model is not None
        response = await (model or self._recorded)(role, params, items)
        self.log.note(
            role.name, question_digest(role.name, params, items), response, clock.monotonic() - started_s
        )
        return response

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; of the optional ones those that have a model or were asked."""
        given = self._recorded.roles | self._models.keys()
        return models_of(roles, lambda role: role.name in given, self, self._sampling)


class ScriptedAnswers:
    """The n-th question to a role gets its n-th answer; after the last one the role fails.

    Attributes:
        asked: the role and the input's items of each question, in order.
    """

    def __init__(self, answers: Mapping[str, Sequence[Scripted]]) -> None:
        self._answers = {role: list(scripted) for role, scripted in answers.items()}
        self.asked: list[tuple[str, list[dict[str, Any]]]] = []

    async def __call__(self, role: Role, params: Raw, items: Sequence[Raw]) -> Raw:
        number = sum(name == role.name for name, _ in self.asked)
        self.asked.append((role.name, [_decode_item(item) for item in items]))
        scripted = self._answers.get(role.name, ())
        if number >= len(scripted):
            raise ModelUnavailable(f"the script of role '{role.name}' has {len(scripted)} answers, no more")
        answer = scripted[number]
        if isinstance(answer, Exception):
            raise answer
        return Raw(make_response(answer) if isinstance(answer, str) else _response(answer))

    def models(self, roles: Sequence[Role]) -> Models:
        """The models of some roles; of the optional ones those that have a script."""
        return models_of(roles, lambda role: role.name in self._answers, self)


def _response(fields: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"id": "resp_0", "status": "completed", "output": [], **fields})
