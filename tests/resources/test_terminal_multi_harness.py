from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.settings import filled
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "terminal_multi_harness"
TEXT = {"type": "string"}
LIST = "ls -la /workspace/project"


def tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "parameters": schema}


TOOLS = [
    tool("exec_command", ["cmd"], cmd=TEXT, workdir=TEXT),
    tool("write_stdin", ["session_id"], session_id={"type": "integer"}, chars=TEXT),
    tool("update_plan", ["plan"], plan={"type": "array"}),
    tool("bash", ["command"], command=TEXT),
    tool("execute_python", [], code=TEXT),
    tool("return_result", ["result"], result={}),
    tool("web_search", ["query"], query=TEXT),
    tool("read", ["filePath"], filePath=TEXT, limit={"type": "integer"}),
    tool("fetch", ["url"], url=TEXT),
]


def expected(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    made = call(name, arguments)
    return {key: made[key] for key in ("type", "name", "arguments")}


def batch(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_batch", "ordered": True, "calls": list(calls)}


async def reason(action: dict[str, Any], *items: Any, harness: str = "codex", **fields: Any) -> str:
    task = row(**{"expected_action": action, "harness": harness, "declared_tools": TOOLS, **fields})
    verdict = await judge(NAME, task, *items)
    assert verdict.reward == float(verdict.fields["failure_reason"] == "none")
    return verdict.fields["failure_reason"]


@table(
    ("name", "wanted", "made", "why"),
    [
        ("exec_command", {"cmd": LIST, "workdir": "/a"}, {"cmd": f"{LIST}\r\n"}, "none"),
        ("exec_command", {"cmd": LIST, "workdir": "/a"}, {"cmd": LIST, "workdir": "/b"}, "none"),
        ("exec_command", {"cmd": LIST}, {"cmd": LIST.replace("-la", "-al")}, "none"),
        ("exec_command", {"cmd": LIST}, {"cmd": LIST, "workdir": "/a"}, "unexpected_arguments"),
        ("exec_command", {"cmd": LIST}, {"cmd": "rm -r /workspace"}, "arguments"),
        ("exec_command", {"cmd": LIST}, {"command": LIST}, "schema"),
        ("exec_command", {"cmd": LIST}, '{"cmd": "ls', "schema"),
        ("exec_command", {"cmd": LIST}, f'["{LIST}"]', "schema"),
        ("write_stdin", {"session_id": 7, "chars": "y"}, {"session_id": 8}, "none"),
        ("write_stdin", {"session_id": 7}, {"session_id": "7"}, "schema"),
        ("update_plan", {"plan": [{"step": "a"}]}, {"plan": ["b"]}, "none"),
        ("update_plan", {"plan": [{"step": "a"}]}, {"plan": []}, "arguments"),
    ],
)
async def test_codex_compares_commands_and_the_rest_by_its_schema(
    name: str, wanted: dict[str, Any], made: dict[str, Any] | str, why: str
) -> None:
    assert await reason(expected(name, wanted), "So:", call(name, made)) == why


@table(
    ("harness", "name", "wanted", "made", "why"),
    [
        ("agent006", "execute_python", {"code": "print(1 + 1)"}, {"code": "print(1 + 2)"}, "none"),
        ("agent006", "execute_python", {"code": "print(1 + 1)"}, {"code": "import os"}, "arguments"),
        ("agent006", "execute_python", {"code": "x"}, {"code": ""}, "arguments"),
        ("agent006", "execute_python", {"code": "x"}, {}, "arguments"),
        ("agent006", "return_result", {"result": {"a": 1, "b": 2}}, {"result": {"b": 2, "a": 1}}, "none"),
        ("agent006", "return_result", {"result": "a long text"}, {"result": 5}, "arguments"),
        ("agent006", "exec_command", {"cmd": LIST}, {"cmd": "rm -r /"}, "none"),
        ("opencode", "bash", {"command": LIST}, {"command": "rm -r /"}, "arguments"),
        ("stirrup", "web_search", {"query": "tide table Brest"}, {"query": "tide tables of Brest"}, "none"),
        ("stirrup", "web_search", {"query": "tide table Brest"}, {"query": "weather"}, "arguments"),
        # The audit found that any file was as good as the expected one.
        ("opencode", "read", {"filePath": "/etc/hosts"}, {"filePath": "/etc/shadow"}, "arguments"),
        ("opencode", "read", {"filePath": "/etc/hosts", "limit": 9}, {"filePath": "/etc/hosts"}, "none"),
        (
            "stirrup",
            "fetch",
            {"url": "https://tides.example/brest"},
            {"url": "https://x.example"},
            "arguments",
        ),
    ],
)
async def test_each_harness_compares_its_own_tools(
    harness: str, name: str, wanted: dict[str, Any], made: dict[str, Any], why: str
) -> None:
    assert await reason(expected(name, wanted), call(name, made), harness=harness) == why


async def test_calls_of_a_batch_are_compared_in_the_order_of_their_names() -> None:
    stdin, look = expected("write_stdin", {"session_id": 7}), expected("exec_command", {"cmd": "pwd"})
    made = [call("exec_command", {"cmd": "pwd"}), call("write_stdin", {"session_id": 7})]
    assert await reason(batch(stdin, look), *made) == "none"
    assert await reason(batch(stdin, look), made[0]) == "number_of_calls"
    assert await reason(batch(stdin, look), *[made[0]] * 2) == "tool_name"
    assert await reason(stdin, *made) == "number_of_calls"
    twice = batch(*(expected("execute_python", {"code": code}) for code in ("x = 100", "print(y)")))
    swapped = [call("execute_python", {"code": code}) for code in ("print(y)", "x = 100")]
    assert await reason(twice, *swapped, harness="agent006") == "none"


async def test_a_message_and_a_call_are_no_match() -> None:
    message = {"type": "message", "content": "Done"}
    assert await reason(message, "All is well.") == "none"
    assert await reason(message, " \n") == "message_expected"
    assert await reason(message, "Done", call("exec_command", {"cmd": "pwd"})) == "message_expected"
    assert await reason(expected("exec_command", {"cmd": "pwd"}), "I call pwd.") == "call_expected"


async def test_a_row_sets_its_threshold() -> None:
    action, made = expected("exec_command", {"cmd": "cat a.txt"}), call("exec_command", {"cmd": "cat b.csv"})
    assert await reason(action, made) == "arguments"
    assert await reason(action, made, threshold=0.5) == "none"
    assert await reason(action, made, string_similarity_threshold=0.5) == "none"


async def test_the_rows_agent_names_its_harness() -> None:
    loaded = catalogue.environment(NAME)
    action = expected("exec_command", {"cmd": "pwd"})
    bare = row(expected_action=action, declared_tools=TOOLS)
    for harness in ("codex", "opencode", "agent006", "stirrup"):
        ref = f"{NAME}_{harness}_agent"
        assert catalogue.resolve_agent_ref(ref) == NAME
        assert json.loads(filled(loaded, bare, ref))["harness"] == harness
    with pytest.raises(TaskError, match="harness"):
        loaded.resource.task(bare)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"declared_tools": []}, "'exec_command' is not among the declared tools"),
        ({"declared_tools": [{"name": "exec_command", "parameters": {"type": "thing"}}]}, "no JSON schema"),
        ({"expected_action": expected("exec_command", {}) | {"arguments": "[]"}}, "not an object"),
    ],
)
def test_a_row_that_could_never_be_worth_anything_is_refused(fields: dict[str, Any], why: str) -> None:
    action = expected("exec_command", {"cmd": "pwd"})
    task = row(**{"expected_action": action, "harness": "codex", "declared_tools": TOOLS, **fields})
    with pytest.raises(TaskError, match=why):
        catalogue.environment(NAME).resource.task(task)


async def test_nemo_gyms_demonstrated_actions_score_full() -> None:
    for line in nemo_gym_rows(NAME):
        action = json.loads(line)["expected_action"]
        calls = action.get("calls", [action])
        made = [call(one["name"], one["arguments"]) for one in calls if one["type"] == "function_call"]
        assert (await judge(NAME, line, *(made or ["It is done."]))).reward == 1.0
