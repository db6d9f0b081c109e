"""What models in roles cost is in the row of a rollout that fails after they have answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from gym_runtime import Model, Reply, Session, Task, Verdict, tool
from gym_runtime.errors import ModelRefused, ModelUnavailable, ResourceError
from gym_runtime.messages.outcomes import Completed, Failed, RolloutRecord
from gym_testing.small_system import Engine, SmallSystem, answer, function_call, small_system
from runtime.workers.roles.judged_system import YES, about, judged, made

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]
ROLES = {"judge": "judge", "expert": "expert"}


class Desk(Session[Task]):
    @tool
    async def advise(self) -> str:
        "Ask the expert."
        return (await self.models.expert.ask("advice?")).text

    async def verify(self, reply: Reply) -> Verdict:
        await self.models.judge.ask("right?")
        await self.models.judge.ask("certain?")
        raise ResourceError("the verifier has a bug")


@pytest.fixture
async def advised() -> AsyncGenerator[SmallSystem]:
    """A system with an agent and an expert."""
    async with small_system() as system:
        await system.add_agent()
        await system.add_model(Engine(answer("wait")), name="expert-1", pool="expert")
        yield system


def calls_of(record: RolloutRecord) -> dict[str, int]:
    """How often each role was asked, by the record, its row and its numbers, which agree."""
    found = {role: use.calls for role, use in record.roles.items()}
    assert {role: use["calls"] for role, use in about(record).get("roles", {}).items()} == found
    assert {role: record.numbers[f"{role}_calls"] for role in found} == found
    return found


async def test_of_a_judge_that_failed_at_its_second_question(system: SmallSystem) -> None:
    async def verify(task: Task, reply: Reply, judge: Model) -> Verdict:
        await judge.ask("right?")
        return Verdict(float("[[A=B]]" in (await judge.ask("certain?")).text))

    await system.add_resource(judged(verify))
    await system.add_model(Engine(YES, ModelRefused("too long")), name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert isinstance(record.outcome, Failed)
    assert calls_of(record) == {"judge": 1}
    assert record.roles["judge"].input_tokens == 10


async def test_of_tools_and_a_verification_that_raises(advised: SmallSystem) -> None:
    await advised.add_model(Engine(answer(function_call("advise")), answer("done")))
    await advised.add_model(Engine(YES), name="judge-1", pool="judge")
    await advised.add_resource(judged(Desk, "judge", "expert"))
    (record,) = await advised.make(made(roles=ROLES))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.stage == "verify"
    assert calls_of(record) == {"expert": 1, "judge": 2}


async def test_of_tools_where_the_policy_fails_after_them(advised: SmallSystem) -> None:
    await advised.add_model(Engine(answer(function_call("advise")), ModelRefused("the filter said no")))
    await advised.add_model(Engine(YES), name="judge-1", pool="judge")
    await advised.add_resource(judged(Desk, "judge", "expert"))
    (record,) = await advised.make(made(roles=ROLES))
    assert isinstance(record.outcome, Failed)
    assert calls_of(record) == {"expert": 1}


@pytest.mark.parametrize("second", [YES, ModelUnavailable("503", retry_after_s=100.0)])
async def test_an_answer_that_a_second_attempt_finds_in_the_journal_counts_once(
    system: SmallSystem, second: Any
) -> None:
    async def verify(task: Task, reply: Reply, judge: Model) -> Verdict:
        first, other = await judge.ask("right?"), await judge.ask("certain?")
        return Verdict(float("[[A=B]]" in first.text + other.text))

    await system.add_resource(judged(verify))
    unavailable = ModelUnavailable("503", retry_after_s=100.0)
    judge = Engine(by_attempt={1: [YES, unavailable], 2: [second]})
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made(max_attempts=2, timeout_s=60.0))
    assert record.attempt == 2
    assert calls_of(record) == {"judge": 2 if isinstance(record.outcome, Completed) else 1}
