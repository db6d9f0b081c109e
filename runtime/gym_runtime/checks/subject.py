"""What a rule of the contract is given: an environment and its example rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.examples import Example
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.role_answers import ScriptedAnswers
from gym_runtime.environment.verdict import Verdict

_encode = msgspec.json.Encoder().encode


class Subject(msgspec.Struct, frozen=True):
    """The environment that is checked, and its examples."""

    environment: LoadedEnvironment
    examples: list[Example]

    @property
    def resource(self) -> Resource:
        return self.environment.resource

    async def judge(self, example: Example, response: bytes) -> Verdict:
        """The verdict on a rollout, reached as a worker reaches it; it can be written as JSON."""
        return await self.judge_with(example, response, example.answers())

    async def judge_with(self, example: Example, response: bytes, answers: ScriptedAnswers) -> Verdict:
        """As `judge`, with these answers of the models in roles."""
        models = answers.models(self.resource.roles)
        verdict = await judge_recorded(self.environment, example.row, response, models)
        _encode(verdict)
        return verdict


Rule = Callable[[Subject], Awaitable[list[str]]]
