"""Agents that ask the model several things: reflection, orchestrator, ReWOO, and thoughts in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from agents.exact_engine import Exact, Watched, assert_exact, furnish, inputs, items, play, short, spec
from gym_agents import orchestrator, parallel_thinking, rewoo
from gym_agents._asking import SHOWN_CHARS
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import Completed, Failed, Truncated
from gym_testing.small_system import answer, small_system
from hostile.shapes import TEXTS

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

TASK = "What is 6 × 7?"
FINAL = answer("<answer>42</answer>", "42")


# -- reflection -----------------------------------------------------------------------------------------


async def test_reflection_stops_at_a_final_answer() -> None:
    record, engine = await play("reflection", FINAL)
    assert (record.outcome, record.reward, inputs(engine)) == (Completed(), 1.0, [[TASK]])


async def test_a_draft_is_criticised_and_made_again() -> None:
    turns = [answer("41"), answer("<think>hm</think>One more."), FINAL]
    record, engine = await play("reflection", *turns)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 3)
    (task,), (criticise,), (_, draft, revise) = inputs(engine)
    assert (task, draft) == (TASK, "41")
    assert TASK in criticise
    assert "\n41\n" in criticise
    assert "\nOne more.\n" in revise
    shown = [short(item) for item in items(record)]
    assert shown == ["41", criticise, "<think>hm</think>One more.", revise, "<answer>42</answer>", "42"]
    # The revision goes on from the draft, and the criticism stands apart.
    assert [(one.kind, len(one.turns)) for one in record.sequences()] == [("main", 2), ("subagent", 1)]
    assert_exact(record, engine)


async def test_reflections_are_bounded_and_need_no_mark() -> None:
    record, engine = await play("reflection", answer("42"))
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 5)
    assert len(inputs(engine)[-1]) == 3  # the task, the latest answer, its critique
    record, _ = await play("reflection", FINAL, agent_options={"final_mark": "", "max_reflections": 1})
    assert record.turns == 3
    record, _ = await play("reflection", answer("42"), max_turns=2)
    assert (record.outcome, record.turns) == (Truncated(reason="max_turns"), 1)


# -- orchestrator ---------------------------------------------------------------------------------------


async def test_each_part_is_answered_on_its_own() -> None:
    plan = "I divide:\nSUBTASK 1: What is 6?\nSUBTASK 2: What is 7?"
    record, engine = await play("orchestrator", *map(answer, [plan, "six", "seven", "42"]))
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 4)
    (planned,), (first,), (second,), (task, combine) = inputs(engine)
    assert TASK in planned
    assert task == TASK
    assert "\nWhat is 6?\n" in first
    assert "\nWhat is 7?\n" in second
    assert "\nsix\n" in combine
    assert "\nseven\n" in combine
    shown = [short(item) for item in items(record)]
    assert shown == [planned, plan, first, "six", second, "seven", combine, "42"]
    assert len(record.sequences()) == 4
    assert_exact(record, engine)


async def test_parts_are_bounded_and_may_be_none() -> None:
    plan = answer("\n".join(f"SUBTASK {number}: {number}?" for number in range(9)))
    record, _ = await play("orchestrator", plan, agent_options={"max_subtasks": 3})
    assert record.turns == 5
    record, _ = await play("orchestrator", plan, max_turns=4)
    assert (record.outcome, record.turns) == (Completed(), 4)
    record, engine = await play("orchestrator", answer("no plan"))
    assert f"\n{TASK}\n" in inputs(engine)[1][0]
    assert record.turns == 3


# -- ReWOO ----------------------------------------------------------------------------------------------


async def test_steps_are_made_one_after_the_other_with_earlier_results() -> None:
    plan = "Plan: look #E1 = LLM[What is 6?]\nPlan: add\n#E2 = LLM[7 times #E1, not #E9]"
    record, engine = await play("rewoo", *map(answer, [plan, "six", "42!", "42"]))
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 4)
    (planned,), (first,), (second,), (task, solve) = inputs(engine)
    assert TASK in planned
    assert task == TASK
    assert "\nWhat is 6?\n" in first
    assert "#E1" not in first
    assert "#E1:\n<quoted>\nsix\n" in second
    assert "#E9:" not in second
    assert "42!" in solve
    assert len(record.sequences()) == 4
    assert_exact(record, engine)


async def test_steps_are_bounded_and_may_be_none() -> None:
    plan = answer("\n".join(f"#E{number} = LLM[{number}?]" for number in range(99)))
    record, _ = await play("rewoo", plan)
    assert record.turns == 1 + 10 + 1
    record, _ = await play("rewoo", plan, max_turns=4)
    assert (record.outcome, record.turns) == (Completed(), 4)
    record, engine = await play("rewoo", answer("no plan"), answer("42"))
    assert (record.reward, record.turns) == (1.0, 2)
    assert inputs(engine)[1][0] == TASK


# -- thoughts in parallel -------------------------------------------------------------------------------


async def test_without_thinkers_the_model_thinks_itself() -> None:
    thoughts = [answer(f"<think>…</think>thought {number}") for number in range(3)]
    options = {"num_parallel_paths": 3}
    record, engine = await play("parallel_thinking", *thoughts, answer("42"), agent_options=options)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 4)
    *asked, (task, told) = inputs(engine)
    assert [parallel_thinking.WAYS[number] in one[0] for number, one in enumerate(asked)] == [True] * 3
    assert task == TASK
    assert all(f"\nthought {number}\n" in told for number in range(3))
    assert len(record.sequences()) == 4
    assert_exact(record, engine)


# -- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        ("reflection", {"max_reflections": -1}),
        ("orchestrator", {"max_subtasks": 0}),
        ("rewoo", {"max_step": 3}),
        ("parallel_thinking", {"num_parallel_paths": "4"}),
        ("tool_loop", {"done_tools": "submit"}),
    ],
)
async def test_options_that_do_not_fit_are_refused(agent: str, options: dict[str, Any]) -> None:
    record, engine = await play(agent, FINAL, agent_options=options)
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.name == "UsageError"
    assert f"options of the agent '{agent}'" in record.outcome.fault.message
    assert not engine.calls.items


# -- hostile plans --------------------------------------------------------------------------------------

PLANS: dict[str, Callable[[], str]] = {
    **{name: (lambda make=make: make(1_000_000)) for name, make in TEXTS.items()},
    "lines": lambda: "SUBTASK 1: x\n#E1 = LLM[x]\n" * 100_000,
    "blank lines": lambda: "\n" * 1_000_000,
    "marks without end": lambda: "SUBTASK " * 125_000 + "#E1 = LLM[" * 50_000,
    "spaces after a mark": lambda: "SUBTASK" + " " * 500_000 + "1" + "\t" * 500_000 + ":",
    "digits after a mark": lambda: "SUBTASK " + "1" * 500_000 + "#E" + "1" * 500_000,
    "brackets in a step": lambda: "#E1 = LLM" + "[" * 500_000 + "]" * 500_000,
    "Plan: and spaces": lambda: "Plan:" + " " * 1_000_000 + "#E1",
    "references": lambda: "#E1 = LLM[x]\n#E2 = LLM[" + "#E1" * 300_000 + "]",
}


def timed(read: Callable[[str], list[Any]], text: str) -> tuple[float, list[Any]]:
    """CPU time of this thread, and the result."""
    begun_s = time.thread_time()
    found = read(text)
    return time.thread_time() - begun_s, found


@pytest.mark.slow
def test_a_plan_of_a_megabyte_is_read_within_50_ms() -> None:
    slow: dict[str, float] = {}
    for shape, make in PLANS.items():
        text = make()
        for read in (orchestrator.parts, rewoo.steps):
            # The least of three: one may pay for a run of the garbage collector, which takes longer than all.
            took_s, found = min((timed(read, text) for _ in range(3)), key=lambda it: it[0])
            questions = [one if isinstance(one, str) else one.question for one in found]
            assert max(map(len, questions), default=0) <= 4000
            if took_s > 0.05:
                slow[f"{read.__name__}: {shape}"] = took_s
    assert not slow


LONGEST_S = 0.15
"""Of processor time on a slow machine: 50 ms on a usual one."""


async def longest_step_s(agent: str, shape: str) -> float:
    watched = Watched(catalogue.load("agents", agent).Agent())
    engine = Exact(answer(PLANS[shape]()))
    async with small_system() as system:
        await furnish(system, engine)
        await system.add_agent({agent: watched})
        (record,) = await system.make(spec(agent))
    assert record.outcome == Completed()
    assert record.turns <= 12
    asked = [msgspec.json.decode(call.input[-1])["content"] for call, _ in engine.calls.items]
    assert max(map(len, asked)) < 11 * (SHOWN_CHARS + 100) + 2000
    return watched.longest_s


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["reflection", "orchestrator", "rewoo", "parallel_thinking", "tool_loop"])
async def test_a_hostile_model_does_not_hold_up_the_worker(agent: str) -> None:
    for shape in ("lines", "references", "brackets in a step", "nested brackets", "one word"):
        # A step that is slow is slow each time; a garbage collection of the tests' process is not.
        for tries_left in (2, 1, 0):
            longest_s = await longest_step_s(agent, shape)
            if longest_s < LONGEST_S or not tries_left:
                break
        assert longest_s < LONGEST_S, shape
