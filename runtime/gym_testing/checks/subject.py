"""What a rule of the contract is given: an environment and its example rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from gym_runtime.environment import examples
from gym_runtime.environment.candidates import as_features, no_verdicts
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.examples import Example
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.role_answers import ScriptedAnswers
from gym_runtime.environment.roles import Models
from gym_runtime.environment.verdict import Pending, Verdict, make_response
from gym_runtime.errors import from_fault
from gym_runtime.messages import Candidate

SILENCE = make_response()

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
        if isinstance(verdict, Pending):
            verdict = await self._compared(example, response, verdict, models)
        _encode(verdict)
        return verdict

    async def _compared(self, example: Example, response: bytes, pending: Pending, models: Models) -> Verdict:
        """The verdict on one of two that are compared: the first is the perfect rollout, the second silence.

        A rollout that is neither stands in the place of the first.
        """
        place = int(response == SILENCE)
        other = SILENCE if not place else await examples.play(self.resource, example)
        beside = await judge_recorded(self.environment, example.row, other, models)
        pair = [pending, beside if isinstance(beside, Pending) else pending]
        candidates = [
            Candidate(rollout_index=index, features=as_features(one.features))
            for index, one in enumerate(pair[::-1] if place else pair)
        ]
        verdict = (await self.resource.compare(example.row, candidates, models))[place]
        if verdict.reward is None:
            raise from_fault(verdict.fault or no_verdicts("nothing").fault())
        return Verdict(verdict.reward, verdict.components, dict(verdict.fields))


Rule = Callable[[Subject], Awaitable[list[str]]]
