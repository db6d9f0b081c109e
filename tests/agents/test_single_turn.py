"""A single turn: one answer, whose tool calls are the answer and not executed."""

from __future__ import annotations

import msgspec
import pytest
from gym_agents.single_turn import Agent as SingleTurn
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import (
    Engine,
    Turn,
    answer,
    environment,
    function_call,
    reasoning,
    rollout_spec,
    row,
    small_system,
)

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def count_calls(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(len(reply.function_calls)))


@pytest.mark.parametrize(
    ("turn", "types"),
    [
        (answer("hi"), ["message"]),
        (answer(function_call("pay"), function_call("pay", call_id="again")), ["function_call"] * 2),
        (answer(reasoning("hm")), ["reasoning"]),
        (answer(), []),
    ],
)
async def test_the_first_answer_is_the_last(turn: Turn, types: list[str]) -> None:
    engine = Engine(turn)
    async with small_system() as system:
        worker = await system.add_resource(
            environment(Environment(resource=count_calls, description="", agent="single_turn"), "sample")
        )
        await system.add_model(engine)
        await system.add_agent({"single_turn": SingleTurn()})
        (record,) = await system.make(rollout_spec(row(), agent="single_turn"))
        assert len(worker.sessions) == 0
    assert record.outcome == Completed()
    assert record.reward == types.count("function_call")
    assert record.tool_calls == 0
    output = msgspec.json.decode(record.row)["response"]["output"]
    assert [item["type"] for item in output] == types
    assert len(engine.calls.items) == 1
