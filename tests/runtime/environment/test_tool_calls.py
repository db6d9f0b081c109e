"""Calls of tools."""

from __future__ import annotations

import json

import anyio
import pytest
from gym_runtime import Session, Task, Text, ToolError, tool
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.tools import NOT_FOUND, SERVER_ERROR
from gym_runtime.errors import ResourceError
from hypothesis import given
from hypothesis import strategies as st
from runtime.environment.resources import ROW, Desk
from tables import table


def test_a_tools_definition_comes_from_its_signature() -> None:
    tools = Resource(Desk).tools
    assert list(tools) == ["add", "travel", "text", "nothing", "scold", "crash", "unspeakable"]
    assert tools["add"].definition() == {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 1}},
            "required": ["left"],
            "additionalProperties": False,
        },
        "strict": False,
    }
    travel = tools["travel"].definition()["parameters"]
    assert travel["properties"] == {"to": {"$ref": "#/$defs/Place"}, "how": {"enum": ["boat", "train"]}}
    assert travel["$defs"]["Place"]["required"] == ["city"]
    assert tools["text"].definition()["parameters"] == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.anyio
@table(
    ("name", "arguments", "answer"),
    [
        ("add", '{"left": 2}', '{"sum":3}'),
        ("add", '{"left": 2, "right": 5}', '{"sum":7}'),
        ("add", '{"left": "2", "unknown": 1}', '{"sum":3}'),
        ("travel", '{"to": {"city": "Faro"}, "how": "boat"}', '{"city":"Faro","country":"PT"}'),
        ("text", "{}", 'as "it" is'),
        ("nothing", "{}", "null"),
        ("scold", "{}", "you may not do that"),
        ("crash", "{}", SERVER_ERROR),
        ("unspeakable", "{}", SERVER_ERROR),
        ("helper", "{}", NOT_FOUND),
        ("verify", "{}", NOT_FOUND),
        ("", "{}", NOT_FOUND),
    ],
)
async def test_what_a_tool_returns_is_what_the_model_reads(name: str, arguments: str, answer: str) -> None:
    resource = Resource(Desk)
    assert await resource.call_tool(await resource.open(ROW), name, arguments) == answer


@pytest.mark.anyio
@table(
    ("arguments", "reason"),
    [
        ("{}", "Object missing required field `left`"),
        ('{"left": []}', "Expected `int`, got `array` - at `$.left`"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("", "the arguments are not JSON: Input data was truncated"),
        ("{left: 1}", "the arguments are not JSON: JSON is malformed"),
        ('{"x":' + "[" * 100_000, "the arguments are not JSON: maximum recursion depth exceeded"),
        ('{"x": "\ud800"}', "the arguments are not JSON: 'utf-8' codec can't encode"),
    ],
)
async def test_arguments_that_do_not_fit_get_the_reason(arguments: str, reason: str) -> None:
    resource = Resource(Desk)
    answer = await resource.call_tool(await resource.open(ROW), "add", arguments)
    (problem,) = json.loads(answer)["detail"]
    assert problem["loc"] == ["body"]
    assert problem["msg"].startswith(reason)


@pytest.mark.slow
@given(
    arguments=st.text(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
)
def test_no_arguments_break_a_call(arguments: str) -> None:
    async def call() -> None:
        resource = Resource(Desk)
        session = await resource.open(ROW)
        for name in resource.tools:
            assert isinstance(await resource.call_tool(session, name, arguments), str)

    anyio.run(call)


@pytest.mark.anyio
@pytest.mark.parametrize("number", ["nan", "-inf", "Infinity", "NaN"])
async def test_a_number_that_is_none_is_refused(number: str) -> None:
    class Bank(Session[Task]):
        @tool
        def pay(self, amount: float, note: str = "", more: list[float] = []) -> str:  # noqa: B006
            """Pay an amount,
            and say what for.

            Further lines are for readers of the code.
            """
            return note

    resource = Resource(Bank)
    assert resource.tools["pay"].definition()["description"] == "Pay an amount, and say what for."
    session = await resource.open(ROW)
    for arguments in ({"amount": number}, {"amount": 1, "more": [1, number]}):
        assert "Expected a finite number" in str(
            await resource.call_tool(session, "pay", json.dumps(arguments))
        )
    assert (
        await resource.call_tool(session, "pay", json.dumps({"amount": 1, "note": number})) == f'"{number}"'
    )


class LoudDesk(Desk):
    @tool
    def text(self) -> Text:
        return Text("LOUD")

    nothing = None  # type: ignore[assignment]


@pytest.mark.anyio
async def test_tools_are_inherited_overridden_and_removed() -> None:
    resource = Resource(LoudDesk)
    assert next(iter(resource.tools)) == "add"
    assert "nothing" not in resource.tools
    assert await resource.call_tool(await resource.open(ROW), "text", "{}") == "LOUD"


class Dynamic(Session[Task]):
    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        if name == "echo":
            return arguments
        if name == "scold":
            raise ToolError("not like this")
        if name == "crash":
            raise RuntimeError("a bug")
        return None


@pytest.mark.anyio
async def test_a_session_may_answer_tools_it_does_not_have() -> None:
    resource = Resource(Dynamic)
    session = await resource.open(ROW)
    assert await resource.call_tool(session, "echo", '{"a": 1}') == '{"a": 1}'
    assert await resource.call_tool(session, "scold", "{}") == "not like this"
    assert await resource.call_tool(session, "other", "{}") == NOT_FOUND
    with pytest.raises(ResourceError, match="RuntimeError: a bug"):
        await resource.call_tool(session, "crash", "{}")
