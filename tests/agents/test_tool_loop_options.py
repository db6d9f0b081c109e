"""The tool loop's options: what ends it, what it gives up, and what the model is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agents.exact_engine import assert_exact, inputs, items, play, short
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, Truncated
from gym_testing.small_system import Hang, answer, function_call, reasoning
from tables import table

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def look(page: int, **more: Any) -> Any:
    return answer(function_call("look", f'{{"page": {page}}}', f"c{page}"), **more)


def tokens(total: int) -> dict[str, Any]:
    return {"usage": {"input_tokens": total - 1, "output_tokens": 1, "total_tokens": total}}


SUBMIT = function_call("submit", '{"result": "42"}', "s")
BAD_SUBMIT = function_call("submit", "{}", "s")
CRASH = function_call("crash")
OVERFLOW = answer(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
WAIT = answer(function_call("wait", '{"seconds": 100}', "w"))
GAVE_UP = '{"error": "The tool \'wait\' did not answer within 5 s."}'

ENDS: dict[str, tuple[list[Any], dict[str, Any], Outcome, str, list[str]]] = {
    "a done tool": (
        [answer(SUBMIT, function_call("look", '{"page": 1}')), answer("not asked")],
        {"done_tools": ["submit"]},
        Completed(),
        "done_tool",
        ["submit()", "look()", '"42"'],
    ),
    "a done tool that fails does not": (
        [answer(BAD_SUBMIT), answer(SUBMIT), answer("not asked")],
        {"done_tools": ["submit"]},
        Completed(),
        "done_tool",
        ["submit()", "…", "submit()", '"42"'],
    ),
    "a message is answered by a nudge": (
        [answer("I think"), answer(reasoning("hm")), answer(SUBMIT)],
        {"done_tools": ["submit"], "nudge": "Continue."},
        Completed(),
        "done_tool",
        ["I think", "Continue.", "…", "submit()", '"42"'],
    ),
    "a failure that it must not survive": (
        [look(1), answer(CRASH), answer("not asked")],
        {"abort_on_tool_errors": ["exception"]},
        Truncated(reason="tool_error"),
        "tool_error",
        ["look()", "1", "crash()", "Internal Server Error"],
    ),
    "a failure that it may survive": (
        [answer(CRASH), answer("42")],
        {"abort_on_tool_errors": ["timeout", "arguments", "unknown_tool"]},
        Completed(),
        "message",
        ["crash()", "Internal Server Error", "42"],
    ),
    "a call that takes long is given up": (
        [WAIT, answer("42")],
        {"tool_timeout_s": 5},
        Completed(),
        "message",
        ["wait()", GAVE_UP, "42"],
    ),
    "and may end it": (
        [WAIT, answer("not asked")],
        {"tool_timeout_s": 5, "abort_on_tool_errors": ["timeout"]},
        Truncated(reason="tool_error"),
        "tool_error",
        ["wait()", GAVE_UP],
    ),
    "time is up": (
        [WAIT, answer("not asked")],
        {"max_time_s": 60},
        Truncated(reason="max_time"),
        "max_time",
        ["wait()", "100.0"],
    ),
    "an incomplete answer": (
        [answer("so", status="incomplete", incomplete_details={"reason": "max_output_tokens"})],
        {"nudge": "Continue."},
        Truncated(reason="max_output_tokens"),
        "max_output_tokens",
        ["so"],
    ),
    "resets are used up": (
        [look(1, **tokens(99)), look(2, **tokens(99)), answer("not asked")],
        {"context_reset_tokens": 50, "context_reset_keep_rounds": 0, "max_reset_count": 1},
        Truncated(reason="max_reset_count"),
        "max_reset_count",
        ["look()", "1", "look()", "2"],
    ),
    "a context that is too short for the task": (
        [OVERFLOW, answer("not asked")],
        {"truncate_on_overflow": True},
        Truncated(reason="max_output_tokens"),
        "max_output_tokens",
        [],
    ),
}


@table("case", ENDS)
async def test_what_ends_it(case: str) -> None:
    turns, options, outcome, stop, transcript = ENDS[case]
    record, engine = await play("tool_loop", *turns, agent_options=options)
    assert record.outcome == outcome
    shown = ["…" if "summary" in item else short(item) for item in items(record)]
    assert [("…" if want == "…" else got) for want, got in zip(transcript, shown, strict=True)] == transcript
    row = msgspec.json.decode(record.row)
    assert row["response"]["metadata"] == {"stop_reason": stop, "steps": str(record.turns)}
    assert_exact(record, engine)


async def test_without_options_the_metadata_is_the_engines() -> None:
    record, _ = await play("tool_loop", answer("42", metadata={"mine": "1"}))
    assert msgspec.json.decode(record.row)["response"]["metadata"] == {"mine": "1"}
    turn = answer("42", metadata={"mine": "1"})
    record, _ = await play("tool_loop", turn, agent_options={"nudge": "x"}, max_turns=1)
    metadata = msgspec.json.decode(record.row)["response"]["metadata"]
    assert metadata == {"mine": "1", "stop_reason": "max_turns", "steps": "1"}


async def test_a_call_that_was_given_up_ends_on_its_worker_too() -> None:
    turns = [WAIT, answer(function_call("wait", '{"seconds": 4}', "w2")), answer("42")]
    record, _ = await play("tool_loop", turns[0], turns[2], agent_options={"tool_timeout_s": 5})
    assert msgspec.json.decode(record.row)["waited"] is False
    record, _ = await play("tool_loop", *turns, agent_options={"tool_timeout_s": 5})
    assert msgspec.json.decode(record.row)["waited"] is True


async def test_a_model_call_that_takes_long_is_a_failed_attempt() -> None:
    record, engine = await play("tool_loop", look(1), Hang(), agent_options={"model_timeout_s": 9})
    assert isinstance(record.outcome, Failed)
    assert record.outcome.fault.name == "ModelUnavailable"
    assert "did not answer within 9 s" in record.outcome.fault.message
    # The second attempt takes the first answer from the journal; the engine's own answers go by turn.
    assert len(engine.cancelled.items) >= 1


# -- what the model is shown ----------------------------------------------------------------------------


async def test_over_the_limit_only_the_latest_rounds_are_shown() -> None:
    sizes = [10, 60, 30, 70]
    turns = [look(page, **tokens(size)) for page, size in enumerate(sizes)]
    options = {"context_reset_tokens": 50, "context_reset_keep_rounds": 1}
    record, engine = await play("tool_loop", *turns, answer("42", **tokens(20)), agent_options=options)
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 5)
    task = "What is 6 × 7?"
    assert inputs(engine) == [
        [task],
        [task, "look()", "0"],
        [task, "look()", "1"],
        [task, "look()", "1", "look()", "2"],
        [task, "look()", "3"],
    ]
    assert [short(item) for item in items(record)][-1] == "42"
    assert len(items(record)) == 9
    assert [len(one.turns) for one in record.sequences()] == [2, 2, 1]
    assert_exact(record, engine)


async def test_where_the_context_is_too_short_the_oldest_round_is_left_out() -> None:
    turns = [look(1), look(2), OVERFLOW, OVERFLOW, answer("42")]
    record, engine = await play("tool_loop", *turns, agent_options={"truncate_on_overflow": True})
    assert (record.outcome, record.reward, record.turns) == (Completed(), 1.0, 5)
    task = "What is 6 × 7?"
    assert inputs(engine)[2:] == [
        [task, "look()", "1", "look()", "2"],
        [task, "look()", "2"],
        [task],
    ]
    assert_exact(record, engine)
