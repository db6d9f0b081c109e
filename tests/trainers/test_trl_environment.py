"""TRL's environments, made without TRL."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest
from gym_runtime.errors import UsageError
from gym_runtime.messages.transcripts import chat_messages, response_items
from gym_testing.small_system import function_call, message, reasoning
from gym_trainers.trl_environment import TrlEnvironment, environment_class, gym_reward
from msgspec import Raw
from tables import table

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"amount": {"type": "integer", "description": "How much."}, "why": {"type": "string"}},
        "required": ["amount"],
    },
}


def made() -> type[TrlEnvironment]:
    return environment_class(None, "counter", "counter", [TOOL])  # pyright: ignore[reportArgumentType]


def test_a_tool_is_a_method_with_the_signature_and_words_that_trl_reads() -> None:
    method: Any = vars(made())["add"]
    assert str(inspect.signature(method)) == "(self, *, amount: int, why: str = None) -> str"
    assert inspect.isfunction(method)
    assert method.__doc__ == (
        "Adds to the counter.\n\nArgs:\n    amount: How much.\n    why: An argument.\n\n"
        "Returns:\n    What the tool answers."
    )


def test_arguments_have_the_types_of_their_schemas() -> None:
    properties = {
        "where": {"type": ["string", "null"]},
        "most": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "filter": {"type": "object"},
        "names": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "integer"]},
        "anything": {"description": "What you like."},
    }
    tool = {**TOOL, "parameters": {"type": "object", "properties": properties}}
    method: Any = vars(environment_class(None, None, "search", [tool]))["add"]  # pyright: ignore[reportArgumentType]
    kinds = {"where": str, "most": int, "filter": dict, "names": list, "either": Any, "anything": Any}
    assert method.__annotations__ == {**kinds, "return": str}


def _with_argument(name: str) -> dict[str, Any]:
    return {**TOOL, "parameters": {"type": "object", "properties": {name: {"type": "string"}}}}


def test_only_tools_and_reset_are_public() -> None:
    members = inspect.getmembers(made(), predicate=inspect.isfunction)
    assert [name for name, _ in members if not name.startswith("_")] == ["add", "reset"]


@table(
    ("tools", "words"),
    [
        ([], "has no tools"),
        ([{**TOOL, "name": "reset"}], "the tool 'reset'"),
        ([{**TOOL, "name": "a-b"}], "a-b"),
        ([{**TOOL, "name": "import"}], "the tool 'import'"),
        (
            [_with_argument("from")],
            "the argument 'from' of the tool 'add' of 'counter' cannot be a parameter",
        ),
        ([_with_argument("max-results")], "the argument 'max-results'"),
        ([_with_argument("self")], "the argument 'self'"),
    ],
)
def test_what_cannot_be_an_environment_is_refused(tools: list[Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        environment_class(None, None, "counter", tools)  # pyright: ignore[reportArgumentType]


def test_rewards_come_from_the_rollouts_or_the_environments() -> None:
    assert gym_reward([], [], gym_reward=[1.0, None]) == [1.0, None]
    assert gym_reward(["p"], ["c"], environments=[made()()]) == [None]  # it was never reset
    with pytest.raises(UsageError, match="rollout_func=spec"):
        gym_reward([], [])


def test_chat_messages_and_items_are_inverse() -> None:
    call = function_call("add", '{"amount":2}', "c1")
    output = {"type": "function_call_output", "call_id": "c1", "output": "2"}
    items = [reasoning("hm"), message("I count."), call, output, message("two")]
    said = chat_messages(Raw(msgspec.json.encode(item)) for item in items)
    assert chat_messages(Raw(msgspec.json.encode(item)) for item in response_items(said)) == said


def test_calls_as_trl_writes_them() -> None:
    function = {"name": "add", "arguments": {"amount": 2}}
    said = [
        {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": "add", "content": "2"},
    ]
    call, output = response_items(said)
    assert (call["arguments"], output["call_id"]) == ('{"amount":2}', call["call_id"])
