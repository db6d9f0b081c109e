"""Rows of two turns for `example_session_state_mgmt`, each of which is its own task by its number."""

from __future__ import annotations

ENVIRONMENT = "example_session_state_mgmt"
_ROW = b"""{"responses_create_params": {"input": [{"role": "user", "content": "add 1, add 2, get the count"}],
"tools": [{"type": "function", "name": "increment_counter", "strict": true, "parameters": {"type": "object",
"properties": {"count": {"type": "integer"}}, "required": ["count"], "additionalProperties": false}}]},
"initial_count": 3, "expected_count": 4, "number": %d}"""


def counter_rows(count: int) -> list[bytes]:
    """So many of them."""
    return [_ROW % number for number in range(count)]
