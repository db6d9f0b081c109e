"""An agent's worker dies in the middle: another one goes on, and asks nothing again that was answered."""

from __future__ import annotations

from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
from agents.exact_engine import DESK, Exact, assert_exact, furnish, hire, items, play, recorded, short, spec
from agents.test_tool_loop_options import OVERFLOW, WAIT, look, tokens
from gym_runtime.messages.outcomes import Completed, Truncated
from gym_testing.small_system import Hang, Turn, answer, small_system
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Case(NamedTuple):
    """A rollout, and which call is on its way when the worker dies; others at that time are answered."""

    agent: str
    turns: list[Turn]
    lost: int
    at_once: int = 1
    options: dict[str, Any] | None = None


PLAN = "SUBTASK 1: a?\nSUBTASK 2: b?\nSUBTASK 3: c?"
STEPS = "#E1 = LLM[a?]\n#E2 = LLM[b #E1?]"
CASES = {
    "reflection": Case("reflection", [*map(answer, ["41", "No.", "43", "No.", "42"])], 3),
    "orchestrator, before its plan": Case("orchestrator", [*map(answer, [PLAN, "x", "y", "z", "42"])], 0),
    "orchestrator, with parts open": Case(
        "orchestrator", [*map(answer, [PLAN, "x", "y", "z", "42"])], 2, at_once=2
    ),
    "orchestrator, at its end": Case("orchestrator", [*map(answer, [PLAN, "x", "y", "z", "42"])], 4),
    "rewoo": Case("rewoo", [*map(answer, [STEPS, "x", "y", "42"])], 2),
    "parallel thinking": Case("parallel_thinking", [*map(answer, ["a", "b", "c", "d", "42"])], 1, at_once=3),
    "a tool that was given up": Case(
        "tool_loop", [look(1), WAIT, look(2), answer("42")], 3, options={"tool_timeout_s": 5}
    ),
    "after a reset": Case(
        "tool_loop",
        [*[look(page, **tokens(60)) for page in range(5)], answer("42")],
        4,
        options={"context_reset_tokens": 50, "context_reset_keep_rounds": 2},
    ),
    "at the reset": Case(
        "tool_loop",
        [look(1), look(2), look(3, **tokens(60)), answer("42")],
        3,
        options={"context_reset_tokens": 50, "context_reset_keep_rounds": 1},
    ),
    "after an overflow": Case(
        "tool_loop",
        [look(1), look(2), OVERFLOW, look(3), answer("42")],
        4,
        options={"truncate_on_overflow": True},
    ),
}


@table("case", CASES)
async def test_it_goes_on_where_its_worker_died(case: str) -> None:
    agent, turns, lost, at_once, options = CASES[case]
    options = options or {}
    undisturbed, _ = await play(agent, *turns, agent_options=options)
    told = [*turns[:lost], Hang(), *turns[lost + 1 : lost + at_once]]
    rest = [turns[lost], *turns[lost + at_once :]]
    engine = Exact(by_attempt={1: told, 2: rest})
    async with small_system() as system:
        await furnish(system, engine)
        await hire(system, agent)
        await system.enqueue(spec(agent, agent_options=options))
        await engine.calls.until(len(told))
        await recorded(system, len(told) - 1)
        system.kill("agent-1")
        await hire(system, agent, "agent-2")
        (record,) = await system.records(1)
    about = msgspec.json.decode(record.row)["_gym"]
    assert (record.outcome, record.attempt, about["resumed_turns"]) == (Completed(), 2, len(told) - 1)
    assert len(engine.calls.items) == len(turns) + 1  # only what was on its way is asked again
    assert sorted(map(str, items(record))) == sorted(map(str, items(undisturbed)))
    assert record.reward == undisturbed.reward == 1.0
    lengths = [[len(sequence.turns) for sequence in one.sequences()] for one in (record, undisturbed)]
    assert lengths[0] == lengths[1]
    assert_exact(record, engine)


async def test_what_was_answered_in_time_counts_though_time_is_up_when_another_goes_on() -> None:
    engine = Exact(look(1), look(2), Hang())
    async with small_system() as system:
        await furnish(system, engine)
        await hire(system, "tool_loop")
        await system.enqueue(spec("tool_loop", agent_options={"max_time_s": 50}))
        await engine.calls.until(3)
        await anyio.sleep(300)
        system.kill("agent-1")
        await hire(system, "tool_loop", "agent-2")
        (record,) = await system.records(1)
    assert (record.outcome, record.turns) == (Truncated(reason="max_time"), 2)
    assert len(engine.calls.items) == 3
    assert_exact(record, engine)


async def test_a_session_is_rebuilt_without_the_calls_that_were_given_up() -> None:
    engine = Exact(look(1), WAIT, look(2), answer("42"))
    async with small_system() as system:
        await furnish(system, engine)
        await hire(system, "tool_loop")
        await system.enqueue(spec("tool_loop", agent_options={"tool_timeout_s": 20}))
        await engine.calls.until(2)
        await anyio.sleep(15)
        await engine.calls.until(3)
        system.kill("resource-1")
        await system.add_resource(DESK, name="resource-2")
        (record,) = await system.records(1)
    about = msgspec.json.decode(record.row)["_gym"]
    assert (record.outcome, record.reward, about["rebuilt_sessions"]) == (Completed(), 1.0, 1)
    assert (record.attempt, record.duration_s < 50) == (1, True)
    assert short(items(record)[-2]) == "2"
