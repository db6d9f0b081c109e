"""Models in roles: asked, limited, counted, and never a silent zero."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import (
    Model,
    Reply,
    Role,
    Task,
    Verdict,
)
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.files.results import failure_class
from gym_runtime.messages.outcomes import Completed, Failed
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    small_system,
)
from runtime.workers.roles.judged_system import YES, about, compare, judged, made

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_judge_is_asked_with_the_rollouts_deadline_and_what_it_cost_stands_in_the_row(
    system: SmallSystem,
) -> None:
    await system.add_resource(judged())
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made(timeout_s=50.0))
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    ((call, context),) = judge.calls.items
    assert [msgspec.json.decode(item) for item in call.input] == [
        {"role": "system", "content": "You judge."},
        {"role": "user", "content": "Is 42 right?"},
    ]
    assert msgspec.json.decode(call.params)["temperature"] == 0.0
    assert (context.rollout, context.attempt) == ("run.0.0", 1)
    assert context.deadline_s <= judge.asked_s[0] + 50.0
    use = about(record)["roles"]["judge"]
    assert (use["calls"], use["input_tokens"], use["output_tokens"]) == (1, 10, 1)
    assert record.roles["judge"].calls == 1
    assert record.numbers["judge_calls"] == 1
    (kept,) = about(record)["role_answers"]
    assert (kept["role"], kept["response"]["output"][0]["content"][0]["text"]) == ("judge", "[[A=B]]")
    assert kept["question"] == "Is 42 right?"


async def test_the_roles_sampling_gives_way_to_the_questions(system: SmallSystem) -> None:
    role = Role(name="judge", sampling={"temperature": 0.7, "max_output_tokens": 50})
    await system.add_resource(judged(compare, role))
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.make(made())
    params = msgspec.json.decode(judge.calls.items[0][0].params)
    assert (params["temperature"], params["max_output_tokens"]) == (0.0, 50)


async def test_what_the_run_says_of_a_roles_sampling_wins(system: SmallSystem) -> None:
    role = Role(name="judge", sampling={"temperature": 0.7, "max_output_tokens": 50})
    await system.add_resource(judged(compare, role))
    judge = Engine(YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    said = {"judge": {"temperature": 0.9, "top_p": 0.5}}
    (record,) = await system.make(made(role_sampling=said))
    params = msgspec.json.decode(judge.calls.items[0][0].params)
    assert (params["temperature"], params["top_p"], params["max_output_tokens"]) == (0.9, 0.5, 50)
    assert about(record)["role_sampling"] == said


async def test_the_policy_may_judge_itself_where_that_is_asked_for(system: SmallSystem) -> None:
    await system.add_resource(judged())
    (record,) = await system.make(made(roles={"judge": "policy"}))
    assert (record.reward, about(record)["roles"]["judge"]["calls"]) == (0.0, 1)


async def test_an_optional_role_is_none_where_it_is_not_given(system: SmallSystem) -> None:
    async def verify(task: Task, reply: Reply, judge: Model | None) -> Verdict:
        return Verdict(float(judge is None))

    await system.add_resource(judged(verify, Role(name="judge", optional=True)))
    (record,) = await system.make(made(roles={}))
    assert record.reward == 1.0


@pytest.mark.parametrize("turn", [answer(""), answer()])
async def test_an_answer_that_is_empty_is_the_rules_business(system: SmallSystem, turn: Any) -> None:
    await system.add_resource(judged())
    await system.add_model(Engine(turn), name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert (record.outcome, record.reward) == (Completed(), 0.0)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (ModelRefused("bad key"), "model"),
        (ModelUnavailable("503"), "model"),
        (Hang(), "model"),
        (answer("It says: yes", status="incomplete"), "model"),
    ],
)
async def test_a_judge_that_fails_is_a_failure_and_no_reward(
    system: SmallSystem, trouble: Any, kind: str
) -> None:
    await system.add_resource(judged(compare, Role(name="judge", timeout_s=5.0)))
    judge = Engine(trouble)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made(max_attempts=2))
    assert isinstance(record.outcome, Failed)
    fault = record.outcome.fault
    assert (record.reward, fault.kind, fault.stage) == (None, kind, "judge")
    assert failure_class(fault) == "judge_failed"
    assert "reward" not in msgspec.json.decode(record.row)
    assert record.attempt == (2 if isinstance(trouble, ModelUnavailable | Hang) else 1)


async def test_a_judge_that_fails_for_a_moment_is_asked_again_and_the_policy_is_not() -> None:
    async with small_system() as system:
        policy = Engine(answer("42"))
        await system.add_agent()
        await system.add_model(policy)
        await system.add_resource(judged())
        judge = Engine(by_attempt={1: [ModelUnavailable("429", retry_after_s=100.0)], 2: [YES]})
        await system.add_model(judge, name="judge-1", pool="judge")
        (record,) = await system.make(made(timeout_s=60.0))
        assert (record.reward, record.attempt, len(policy.calls.items)) == (1.0, 2, 1)


async def test_overload_is_waited_out_within_the_attempt(system: SmallSystem) -> None:
    await system.add_resource(judged())
    judge = Engine(ModelUnavailable("429", retry_after_s=0.5), ModelUnavailable("503"), YES)
    await system.add_model(judge, name="judge-1", pool="judge")
    (record,) = await system.make(made())
    assert (record.reward, record.attempt, len(judge.calls.items)) == (1.0, 1, 3)


async def test_a_role_that_no_worker_serves_fails_with_its_name(system: SmallSystem) -> None:
    await system.add_resource(judged())
    (record,) = await system.make(made(max_attempts=1))
    assert isinstance(record.outcome, Failed)
    fault = record.outcome.fault
    assert (fault.name, fault.stage) == ("ModelUnavailable", "judge")
    assert "no worker serves model 'judge'" in fault.message
    assert failure_class(fault) == "judge_failed"


async def test_no_more_questions_are_in_flight_than_the_role_allows(system: SmallSystem) -> None:
    await system.add_resource(judged(compare, Role(name="judge", concurrency=2)))
    judge = Engine(Hang())
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(*(made(task=number) for number in range(5)))
    await judge.calls.until(2)
    await anyio.sleep(5)
    assert len(judge.calls.items) == 2


async def test_cancelling_a_rollout_reaches_the_judge(system: SmallSystem) -> None:
    await system.add_resource(judged())
    judge = Engine(Hang())
    await system.add_model(judge, name="judge-1", pool="judge")
    await system.enqueue(made())
    await judge.calls.until(1)
    await system.bus.publish("cancel.run.0.0", b"")
    await judge.cancelled.until(1)
