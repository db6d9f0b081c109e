"""A row taken apart, whatever is in it; and drawn by the page with its card."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime.messages.transcripts import tool_error
from gym_view.row import ForkedFrom, card, card_json
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import table
from view import node

PAGE = """
const { conversation } = await import(src + "/row.js");
const drawn = ({ row, card }) => conversation(row, card).map((item) => [item.turn, item.error]);
const answer = (rows) => rows.map(drawn);
"""


def drawn(*rows: dict[str, Any]) -> list[list[list[Any]]]:
    """Turn and error of each item that the page draws of some rows."""
    cards = [msgspec.json.decode(card_json(msgspec.json.encode(row))) for row in rows]
    given = [{"row": row, "card": about} for row, about in zip(rows, cards, strict=True)]
    return node.run(PAGE, given)


def message(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}


def call(output: Any) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]


ROWS: list[dict[str, Any]] = [
    {},
    {
        "responses_create_params": {"input": "2 + 2?", "instructions": "Be short."},
        "response": {"output": [*call('{"error": "no b"}'), *call("5"), message("4")]},
        "reward": 0.5,
        "reward_components": {"a": 1, "b": 0.25},
        "extracted_answer": "4",
        "expected_answer": 4,
        "predicted_label": None,
        "_gym": {"attempt": 3, "outcome": {"type": "truncated", "reason": "max_turns"}},
    },
    {
        "response": {
            "output": [message("x"), message("ok?", "user"), message("y")],
            "incomplete_details": {"reason": "max_output_tokens"},
        },
        "reward": 1,
        "_ng_attempt_index": 1,
        "_ng_failure_class": "judge_failed",
    },
    {
        "response": {
            "output": [{"type": "reasoning", "summary": []}, {**message("x"), "generation_token_ids": [1]}]
        }
    },
    {"response": {"output": [message("hi", "user"), message("x"), message("ok?", "user"), message("y")]}},
]


def test_the_page_draws_every_item_with_its_turn_and_error() -> None:
    assert drawn(*ROWS) == [
        [],
        [[0, ""], [0, ""], [1, ""], [1, "no b"], [2, ""], [2, ""], [3, ""]],
        [[1, ""], [1, ""], [2, ""]],
        [[1, ""], [1, ""]],
        [[1, ""], [1, ""], [1, ""], [2, ""]],
    ]


def test_a_card_says_what_a_reward_rests_on() -> None:
    about = card(ROWS[1])
    assert (about.reward, about.components) == (0.5, {"a": 1.0, "b": 0.25})
    assert (about.found, about.expected) == (
        {"extracted_answer": "4", "predicted_label": None},
        {"expected_answer": "4"},
    )
    assert (about.limits, about.attempt, about.outcome) == (["max_turns"], 3, "truncated")
    assert about.tool_error is not None
    assert (about.tool_error.turn, about.tool_error.error) == (1, "no b")


def test_a_fork_says_where_it_begins() -> None:
    fork = {"rollout_id": "r.3.1", "task_index": 3, "rollout_index": 1, "turn": 2, "items": 3}
    about = card({"_gym": {"fork": {**fork, "changed": ["tool_output"], "differed": [1]}}})
    assert about.fork == ForkedFrom("r", 3, 1, 2, ["tool_output"], [1])
    strange = card({"_gym": {"fork": fork | {"changed": 1, "turn": "x"}}})
    assert strange.fork == ForkedFrom("r", 3, 1, 0, [], [])
    assert card({"_gym": {"fork": []}}).fork is None


def test_roles_are_shown_once_with_their_question_and_label() -> None:
    def said(text: str) -> dict[str, Any]:
        return {"output": [message(text)]}

    question = {
        "input": [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it right?"}]
    }
    row = {
        "response": {"output": [message("hello", "user"), message("x")]},
        "judge_evaluations": [
            {"responses_create_params": question, "response": said("yes"), "verdict_label": "A"},
            {"response": said("perhaps"), "verdict_label": None},
        ],
        "critique": "short",
        "_gym": {
            "role_answers": [
                {"role": "user", "digest": "1", "question": "hi", "response": said("hello")},
                {"role": "judge", "digest": "2", "response": said("yes")},
                {"role": "critic", "digest": "3", "question": "good?", "response": said("no")},
                {"role": "critic", "digest": "3", "response": said("so so")},
            ]
        },
    }
    about = card(row)
    assert [(one.role, one.question, one.answer, one.label) for one in about.asked] == [
        ("judge", "Is it right?", "yes", "A"),
        ("critic", "good?", "no", ""),
        ("critic", "good?", "so so", ""),
        ("judge evaluations", "", "perhaps", None),
    ]
    assert about.judged == {"critique": "short"}


def test_a_failure_is_no_reward() -> None:
    fault = {"kind": "model", "stage": "respond", "message": "no engine", "name": "X", "retryable": True}
    about = card({"reward": 1, "_ng_failure": fault, "_ng_failure_class": "model_failed"})
    assert (about.reward, about.outcome, about.failure) == (None, "failed", "model in respond: no engine")
    assert about.notes == "X · model_failed · may be tried again"
    assert card(ROWS[2]).failure == "judge_failed"
    assert card(ROWS[2]).limits == ["max_output_tokens"]


KEYS = "type output content text role error reason input attempt outcome turns duration_s usage timing"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\n{[", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner),
    max_leaves=10,
)
NAMES = st.sampled_from(
    [
        "responses_create_params",
        "response",
        "reward",
        "reward_components",
        "_gym",
        "_ng_failure",
        "judge_notes",
    ]
)


@pytest.mark.slow
@given(rows=st.lists(st.dictionaries(NAMES, ANYTHING, max_size=4), max_size=30))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=15)
def test_no_row_is_too_strange(rows: list[dict[str, Any]]) -> None:
    assert len(drawn(*rows)) == len(rows)


def test_an_integer_that_no_double_holds_is_no_number() -> None:
    huge = 10**400
    made = card({"reward": huge, "reward_components": {"a": huge, "b": 1}, "_gym": {"duration_s": huge}})
    assert (made.reward, made.components, made.facts) == (None, {"b": 1.0}, "")


@pytest.mark.parametrize("line", [b"no json", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_row_has_no_card(line: bytes) -> None:
    assert card_json(line) == b"null"


@table(
    ("said", "error"),
    [
        ("Error: no such file\nmore", "Error: no such file"),
        ("Traceback (most recent call last):\n", "Traceback (most recent call last):"),
        ("ValueError: 3", "ValueError: 3"),
        ('{"error": {"code": 4}}', '{"code":4}'),
        ('{"success": false, "message": "no"}', "no"),
        ('{"success": true}', ""),
        ('{"error": null}', ""),
        ('{"errors": []}', ""),
        ("There is no error.", ""),
        ("{", ""),
        ("", ""),
    ],
)
def test_tools_say_in_many_ways_that_they_failed(said: str, error: str) -> None:
    assert tool_error(said) == error
