"""A row taken apart: the same in the terminal as on the page, and whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from gym_runtime.messages.transcripts import readable_items, tool_error
from gym_view.row import card
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from view import node

PAGE = """
const { card, conversation } = await import(src + "/row.js");
const answer = (rows) => rows.map((row) => {
  const about = card(row), items = conversation(row);
  return {
    reward: about.reward,
    components: Object.fromEntries(about.components),
    found: about.found.map(([name]) => name),
    expected: about.expected.map(([name]) => name),
    limits: about.limits,
    failed: about.failure !== null,
    toolError: about.toolError?.error ?? "",
    attempt: about.attempt,
    turns: items.map((item) => item.turn),
    errors: items.map((item) => item.error),
  };
});
"""


def taken_apart(row: dict[str, Any]) -> dict[str, Any]:
    about, items = card(row), list(readable_items(row))
    return {
        "reward": about.reward,
        "components": about.components,
        "found": list(about.found),
        "expected": list(about.expected),
        "limits": about.limits,
        "failed": bool(about.failure),
        "toolError": about.tool_error.error if about.tool_error else "",
        "attempt": about.attempt,
        "turns": [item.turn for item in items],
        "errors": [item.error for item in items],
    }


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
]


def test_the_page_takes_rows_apart_as_the_terminal_does() -> None:
    assert node.run(PAGE, ROWS) == [taken_apart(row) for row in ROWS]


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


@given(rows=st.lists(st.dictionaries(NAMES, ANYTHING, max_size=4), max_size=30))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=15)
def test_no_row_is_too_strange(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        taken_apart(row)
    assert len(node.run(PAGE, rows)) == len(rows)


@pytest.mark.parametrize(
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
