"""An environment that is checked or audited, with its examples: plays and judges them as a worker does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from gym_runtime import Pending, Verdict, make_response
from gym_runtime.environment import (
    Example,
    LoadedEnvironment,
    Models,
    Resource,
    ScriptedAnswers,
    as_features,
    examples,
    hearing,
    judge_recorded,
    no_verdicts,
)
from gym_runtime.errors import from_fault
from gym_runtime.messages import Candidate

from gym_testing.checks.stored_row import without_input

SILENCE = make_response()

_encode = msgspec.json.Encoder().encode


class Perfect(msgspec.Struct, frozen=True):
    """The perfect rollout of a row, and what went wrong with its calls, in words."""

    response: bytes
    raised: list[str]
    refused: list[str]


class Subject(msgspec.Struct, frozen=True):
    """The environment that is checked, and its examples.

    The perfect rollouts are played and judged once for all rules; a rule about repetitions compares a second
    time with these.
    """

    environment: LoadedEnvironment
    examples: list[Example]
    played: dict[int, Perfect] = {}
    judged: dict[int, tuple[Verdict, bytes]] = {}

    @property
    def resource(self) -> Resource:
        return self.environment.resource

    def placed(self, found: Iterable[tuple[Example, str]]) -> list[str]:
        """Problems of rows, each with file and line; equal ones of several rows are one."""
        path, here = self.environment.examples, Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        rows: dict[str, dict[int, None]] = {}
        for example, problem in found:
            rows.setdefault(problem, {})[example.number] = None
        return [
            f"{len(numbers)} rows: first at {shown}:{min(numbers)}: {problem}"
            if len(numbers) > 1
            else f"{shown}:{min(numbers)}: {problem}"
            for problem, numbers in rows.items()
        ]

    async def perfect(self, example: Example) -> Perfect:
        """The perfect rollout of a row, as it was first played."""
        if example.number not in self.played:
            with hearing() as heard:
                response = await examples.play(self.resource, example)
            self.played[example.number] = Perfect(response, heard.raised, heard.refused)
        return self.played[example.number]

    async def gold(self, example: Example) -> tuple[Verdict, bytes]:
        """The verdict on it, and its bytes, as it was first judged."""
        if example.number not in self.judged:
            verdict = await self.judge(example, (await self.perfect(example)).response)
            self.judged[example.number] = verdict, _encode(verdict)
        return self.judged[example.number]

    async def judge(
        self, example: Example, response: bytes, answers: ScriptedAnswers | None = None
    ) -> Verdict:
        """The verdict on a rollout, reached as a worker reaches it; it can be written as JSON.

        Args:
            answers: of the models in roles; by default those of the perfect rollout.
        """
        models = (answers or example.answers()).models(self.resource.roles)
        row = example.row if self.environment.definition.reads_input else without_input(example.row)
        verdict = await judge_recorded(self.environment, row, response, models)
        if isinstance(verdict, Pending):
            verdict = await self._compared(example, response, verdict, models)
        _encode(verdict)
        return verdict

    async def _compared(self, example: Example, response: bytes, pending: Pending, models: Models) -> Verdict:
        """The verdict on one of two that are compared: the first is the perfect rollout, the second silence.

        A rollout that is neither takes the place of the first.
        """
        place = int(response == SILENCE)
        other = SILENCE if not place else (await self.perfect(example)).response
        beside = await judge_recorded(self.environment, example.row, other, models)
        pair = [pending, beside if isinstance(beside, Pending) else pending]
        candidates = [
            Candidate(rollout_index=index, features=as_features(one.features))
            for index, one in enumerate(pair[::-1] if place else pair)
        ]
        verdict = (await self.resource.compare(example.row, candidates, models))[place]
        if verdict.reward is None:
            raise from_fault(verdict.fault or no_verdicts("nothing").fault())
        return Verdict(verdict.reward, verdict.components, dict(verdict.fields), verdict.rewards)
