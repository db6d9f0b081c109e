"""How a rollout ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.adapters import Rollout
from gym_runtime.errors import ModelRefused, ModelUnavailable
from gym_runtime.messages.outcomes import Completed, Truncated
from gym_testing.background import Mailbox, settled
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    Turn,
    answer,
    function_call,
    rollout_spec,
    row,
)
from runtime.workers.agent_worker.agents import fault_of, make, message_of, row_of

pytestmark = pytest.mark.anyio


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


async def test_a_rollout_that_is_done_is_completed_with_its_reward(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    record = await make(system, answer(function_call("work")), answer("done"))
    assert record.outcome == Completed()
    assert (record.reward, record.attempt, record.turns, record.tool_calls) == (1.0, 1, 2, 1)
    assert record.worker == "agent-1"
    assert row_of(record)["reward"] == 1.0
    assert await ledger.until(3) == ["open", "work", "close"]


@pytest.mark.parametrize(
    ("turns", "more", "reason"),
    [
        ([answer(function_call("work"))], {"max_turns": 3}, "max_turns"),
        ([answer("do", **INCOMPLETE)], {}, "max_output_tokens"),
    ],
)
async def test_a_rollout_that_a_limit_ends_is_truncated_and_judged_all_the_same(
    system: SmallSystem, turns: list[Turn], more: dict[str, Any], reason: str
) -> None:
    record = await make(system, *turns, **more)
    assert record.outcome == Truncated(reason=reason)
    assert record.reward == row_of(record)["reward"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "fault", "transcript"),
    [
        ([answer(function_call("work")), answer("crash")], ("resource", "verify", False), 3),
        ([answer(function_call("work")), answer("nan")], ("resource", "verify", False), 3),
        ([answer(function_call("work")), answer("wait")], ("deadline", "resource", False), 3),
        ([answer(function_call("work")), ModelRefused("bad key")], ("model", "model", False), 2),
        ([ModelUnavailable("overloaded")], ("model", "model", True), 0),
        ([answer(function_call("hang"))], ("deadline", "resource", False), 1),
        ([answer(function_call("work")), Hang()], ("deadline", "model", False), 2),
    ],
)
async def test_a_failure_has_a_cause_and_a_partial_transcript_and_no_reward(
    system: SmallSystem, turns: list[Turn], fault: tuple[str, str, bool], transcript: int
) -> None:
    record = await make(system, *turns, timeout_s=1000)
    assert fault_of(record) in [fault, (fault[0], "agent", fault[2])]
    row = row_of(record)
    assert record.reward is None
    assert "reward" not in row
    assert "reward" not in record.numbers
    assert len(row["response"]["output"]) == transcript
    assert row["_gym"]["outcome"]["type"] == "failed"


async def test_a_row_that_does_not_fit_fails_as_the_tasks_fault_at_once(system: SmallSystem) -> None:
    await system.add_model(Engine(answer("done")))
    await system.add_agent()
    rows = [row(wanted=5), b'{"wanted": "done"}', b'{"responses_create_params": {"inputs": []}}']
    records = await system.make(*[rollout_spec(row, task=task) for task, row in enumerate(rows)])
    assert {fault_of(record)[0] for record in records} == {"task"}
    assert {record.attempt for record in records} == {1}


async def test_an_agents_bug_fails_its_rollout_and_no_other(
    system: SmallSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    class Careless:
        async def run(self, rollout: Rollout) -> None:
            await rollout.respond()
            if rollout.task.task_index == 0:
                raise KeyError("plan")

    await system.add_model(Engine(answer("done")))
    await system.add_agent({"tool_loop": Careless()})
    records = await system.make(*[rollout_spec(row(), task=task) for task in range(3)])
    failed, *others = sorted(records, key=lambda record: record.task_index)
    assert fault_of(failed) == ("runtime", "agent", False)
    assert "KeyError: 'plan'" in message_of(failed)
    assert len(row_of(failed)["response"]["output"]) == 1
    assert [record.outcome for record in others] == [Completed()] * 2


async def test_a_deadline_ends_a_rollout_on_time_and_closes_its_session_at_once(
    system: SmallSystem, ledger: Mailbox[str]
) -> None:
    started_s = clock.monotonic()
    record = await make(system, answer(function_call("work")), Hang(), timeout_s=50)
    assert fault_of(record)[0] == "deadline"
    assert "50 s" in message_of(record) or "deadline passed" in message_of(record)
    assert clock.monotonic() - started_s == pytest.approx(50, abs=1)
    await settled(lambda: ledger.items == ["open", "work", "close"], within_s=1)


async def test_an_agent_that_waits_for_ever_is_ended_by_the_deadline_too(system: SmallSystem) -> None:
    class Sleeper:
        async def run(self, rollout: Rollout) -> None:
            await anyio.sleep_forever()

    await system.add_agent({"tool_loop": Sleeper()})
    (record,) = await system.make(rollout_spec(row(), timeout_s=20))
    assert fault_of(record) == ("deadline", "agent", False)
    assert record.duration_s == pytest.approx(20, abs=0.1)
