"""The `scripted` adapter: its scripts, and that they are deterministic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gym_models.scripted import Adapter
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import TOOL, USER, context, model_call, output

pytestmark = pytest.mark.anyio


async def answer(
    name: str, *items: dict[str, Any], options: dict[str, Any] | None = None, **params: Any
) -> Any:
    async with Adapter(ModelSettings.parse(f"scripted/{name}", options=options or {})) as adapter:
        return output(await adapter.respond(model_call(*items, **params), context()))


async def test_the_same_conversation_gets_the_same_answer() -> None:
    async with Adapter(ModelSettings.parse("scripted/tool-then-message")) as adapter:
        answers = [await adapter.respond(model_call(tools=[TOOL]), context()) for _ in range(2)]
    assert bytes(answers[0].response) == bytes(answers[1].response)


async def test_message_and_echo() -> None:
    (said,) = await answer("message", options={"text": "hello"})
    assert said["content"][0]["text"] == "hello"
    (said,) = await answer("echo", USER, {"role": "assistant", "content": "no"})
    assert said["content"][0]["text"] == USER["content"]


@pytest.mark.parametrize(
    "tool",
    [
        7,
        {**TOOL, "parameters": "x"},
        {**TOOL, "parameters": {"anyOf": [1]}},
        {**TOOL, "parameters": {"required": ["a"], "properties": {"a": {"enum": 5}}}},
        {**TOOL, "parameters": {"required": 1.5, "properties": {}}},
    ],
)
async def test_a_tool_that_is_none_is_the_rows_fault(tool: Any) -> None:
    with pytest.raises(TaskError, match="is no function with a JSON schema"):
        await answer("tool-then-message", tools=[tool])


async def test_arguments_fit_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "unit": {"enum": ["c", "f"]},
            "days": {"type": "integer", "minimum": 2},
            "where": {"$ref": "#/$defs/Place"},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unused": {"type": "string"},
        },
        "required": ["unit", "days", "where", "maybe", "tags"],
        "$defs": {
            "Place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}
        },
    }
    (call,) = await answer("tool-then-message", tools=[TOOL | {"parameters": schema}])
    assert json.loads(call["arguments"]) == {
        "unit": "c",
        "days": 2,
        "where": {"lat": 1},
        "maybe": True,
        "tags": ["tags"],
    }


async def test_a_script_goes_on_where_the_conversation_stands(tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    thought = {"type": "reasoning", "id": "r", "summary": []}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    script.write_text("\n".join(json.dumps(line) for line in ([thought], [call], ["done"])) + "\n\n")
    name = str(script)
    assert await answer(name) == [thought]
    assert await answer(name, USER, thought) == [call]
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    (said,) = await answer(name, USER, thought, call, result)
    assert said["content"][0]["text"] == "done"
    assert await answer(name, USER, thought, call, result, said, USER) == [thought]


async def test_a_call_in_a_script_may_be_written_short(tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    script.write_text('[{"call": "pick", "shelf": "A"}]\n')
    (call,) = await answer(str(script))
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "pick",
        {"shelf": "A"},
    )


@pytest.mark.parametrize(
    ("content", "said"), [(b"{}", "s.jsonl:1: not a list"), (b"[1]", "s.jsonl:1"), (b"\n", "is empty")]
)
async def test_a_broken_script(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "s.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        await answer(str(tmp_path / "s.jsonl"))


@pytest.mark.parametrize(
    ("name", "said"),
    [("ecko", "did you mean 'echo'"), ("no.jsonl", "cannot be read"), ("", "there is no script")],
)
async def test_no_such_script(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await answer(name)


async def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="txt"):
        Adapter(ModelSettings.parse("scripted/message", options={"txt": "x"}))
