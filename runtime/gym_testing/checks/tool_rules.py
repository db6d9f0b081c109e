"""The rules of the contract about tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from gym_runtime.environment import examples, schemas
from gym_runtime.environment.replayed_session import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.schemas import schema_problems
from gym_runtime.environment.tools import SERVER_ERROR, hearing_errors

from gym_testing.checks.subject import Subject

BROKEN_ARGUMENTS = ("{}", "", "{", "[]", "null", '"text"', '{"a": "\\ud800"}', '{"a":' + 9999 * "[")

_encode = msgspec.json.Encoder().encode


async def tools_match(subject: Subject) -> list[str]:
    """The tools in the rows that differ from the environment's."""
    problems: list[str] = []
    for example in subject.examples:
        task = subject.resource.task(example.row)
        for raw in task.responses_create_params.tools:
            tool = cast("Mapping[str, Any]", msgspec.json.decode(raw))
            problems += [f"row {example.number}: {problem}" for problem in _tool_problems(subject, tool)]
    return problems


def _tool_problems(subject: Subject, tool: Mapping[str, Any]) -> Iterator[str]:
    name = tool.get("name")
    parameters = tool.get("parameters")
    if tool.get("type") != "function" or not isinstance(name, str):
        return
    if not isinstance(parameters, dict):
        yield f"the tool '{name}' has no parameters"
        return
    shown = cast("Mapping[str, Any]", parameters)
    yield from (f"the tool '{name}': {problem}" for problem in schema_problems(shown))
    known = subject.resource.tools
    if not known:
        return
    if name not in known:
        yield f"the tool '{name}' is not one of the environment's: {', '.join(known)}"
        return
    own = known[name].definition()["parameters"]
    odd = set(shown.get("properties", ())) ^ set(own["properties"])
    if odd:
        yield f"the tool '{name}' differs from the environment's in: {', '.join(sorted(odd))}"


async def tools_work(subject: Subject) -> list[str]:
    """The tools that raise, in the perfect rollouts and with example arguments."""
    problems: list[str] = []
    with hearing_errors() as heard:
        for example in subject.examples:
            before = len(heard)
            await examples.play(subject.resource, example)
            problems += [f"row {example.number}: {error}" for error in dict.fromkeys(heard[before:])]
        for name, tool in subject.resource.tools.items():
            before = len(heard)
            arguments = _encode(schemas.example(tool.definition()["parameters"])).decode()
            models = subject.examples[0].answers().models(subject.resource.roles)
            async with session_of(subject.resource, subject.examples[0].row, models) as session:
                await subject.resource.call_tool(session, name, arguments)
            problems += [f"{name}({arguments}): {error}" for error in dict.fromkeys(heard[before:])]
    return problems


async def answers_bad_calls(subject: Subject) -> list[str]:
    """The calls with wrong names or arguments that break a tool instead of being answered."""
    resource, problems = subject.resource, list[str]()
    for name, arguments in _bad_calls(resource):
        models = subject.examples[0].answers().models(resource.roles)
        async with session_of(resource, subject.examples[0].row, models) as session:
            answer = cast("object", await resource.call_tool(session, name, arguments))
            if not isinstance(answer, str):
                problems.append(f"{name}({arguments:.20}) answers {answer!r}, which is not a text")
            elif answer == SERVER_ERROR:
                problems.append(f"{name}({arguments:.20}) broke the tool")
    return problems


def _bad_calls(resource: Resource) -> Iterator[tuple[str, str]]:
    yield "no_such_tool", "{}"
    for name, tool in resource.tools.items():
        yield from ((name, arguments) for arguments in BROKEN_ARGUMENTS)
        wrong = {parameter: {"wrong": "type"} for parameter in tool.definition()["parameters"]["required"]}
        yield name, _encode(wrong).decode()
