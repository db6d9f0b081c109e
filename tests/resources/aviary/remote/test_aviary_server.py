"""Environments on the server of Aviary's library."""

from __future__ import annotations

from typing import Any

import pytest
from data.web.site import Site
from gym_resources.aviary_episodes.server_messages import fitting
from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.replaying import session_of
from gym_runtime.errors import ServiceUnavailable, TaskError, UsageError
from resources.aviary.remote.remote_runs import REAL, items, played, resource, running
from resources.judging import call, row
from stubs import stub_aviary

pytestmark = pytest.mark.anyio


@REAL
async def test_the_librarys_own_server_is_played_and_its_environments_are_closed() -> None:
    first, tools, (done,) = await played(row(task_idx=1), [call("print_story", {"story": "A fox ran."})])
    assert first == [{"role": "user", "content": "Write a 5 word story via print_story about a fox"}]
    assert [tool["name"] for tool in tools] == ["print_story", "cast_float", "cast_int", "get_random_int"]
    assert tools[0]["parameters"]["required"] == ["story"]
    assert (done.reward, done.terminated, done.truncated) == (1.0, True, False)
    assert [item["call_id"] for item in items(done)] == ["c"]
    assert await running() == []


@REAL
@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ([call("print_story", {})], "Invalid tool call: INVALID"),
        ([call("print_story", {"story": 3})], "Invalid tool call: INVALID"),
        ([call("print_story", {"story": "x", "to": "y"})], "Invalid tool call: INVALID"),
        ([call("print_story", "{")], "Invalid tool call: INVALID"),
        ([call("print_story", '{"story": "\\ud800"}')], "Invalid tool call: INVALID"),
        ([call("print_story", "[" * 100_000)], "Invalid tool call: INVALID"),
        ([call("fly", {"to": "the moon"})], "Invalid tool call: fly"),
        ([call("f" * 100_000, {})], "Invalid tool call: " + "f" * 200),
    ],
)
async def test_what_is_no_call_of_a_tool_is_an_invalid_call(answer: list[Any], read: str) -> None:
    _, _, (done,) = await played(row(task_idx=0), answer)
    assert (items(done)[0]["output"], done.reward, done.terminated) == (read, 0.0, False)


@REAL
async def test_an_answer_without_a_call_is_answered_by_the_environment() -> None:
    _, _, (done,) = await played(row(task_idx=0), ["Once upon a time."])
    [said] = items(done)
    assert said["role"] == "user"
    assert "No tool calls input" in said["content"]
    assert (done.reward, done.terminated) == (0.0, False)


@REAL
async def test_images_are_shown_but_none_that_an_engine_would_have_to_fetch() -> None:
    first, _, (done,) = await played(
        row(task_idx=None, task_kwargs={"album": True, "end_immediately": False}),
        [call("cast_int", {"x": 2.5})],
    )
    assert first[-1]["content"] == [
        {"type": "input_text", "text": "Look."},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
    ]
    assert items(done) == [
        {"type": "function_call_output", "call_id": "c", "output": "2"},
        {"role": "user", "content": ""},
    ]


@REAL
async def test_a_task_that_the_server_does_not_have_is_a_bad_row() -> None:
    with pytest.raises(TaskError, match=f"task_idx is 99; the Aviary server has {stub_aviary.TASKS} tasks"):
        await resource().open(row(task_idx=99))


@REAL
async def test_what_raises_in_an_environment_is_a_failure_and_the_environment_is_closed() -> None:
    with pytest.raises(ServiceUnavailable, match=r"HTTP 500: .*could not convert string to float") as raised:
        await played(row(task_idx=0), [call("cast_float", {"x": "much"})])
    assert (raised.value.stage, raised.value.retryable) == ("resource", False)
    assert await running() == []


@REAL
@pytest.mark.parametrize("key", ["wrong", ""])
async def test_a_key_that_the_server_does_not_take(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVIARY_SERVER_API_KEY", key)
    with pytest.raises(ServiceUnavailable, match="refuses the key in AVIARY_SERVER_API_KEY") as raised:
        await resource().open(row(task_idx=0))
    assert (raised.value.stage, raised.value.retryable) == ("resource", False)


async def test_a_server_that_needs_no_key_gets_none(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AVIARY_SERVER_API_KEY")
    async with session_of(resource(), row(task_idx=0)):
        pass
    assert served.asked == ["/close_old_envs", "/start", "/close"]
    assert all("X-API-Key" not in headers for headers in served.headers)


@pytest.mark.parametrize(
    "fields", [{}, {"task_idx": -1}, {"task_idx": None}, {"task_idx": 1, "task_kwargs": {"x": 1}}]
)
def test_a_row_names_one_task(fields: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        resource().task(row(**fields))


def test_without_a_server_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AVIARY_SERVER_URL", raising=False)
    with pytest.raises(UsageError, match="AVIARY_SERVER_URL is not set"):
        requirements.require(catalogue.environment("aviary_remote"))


@pytest.mark.parametrize(
    ("given", "schema", "fits"),
    [
        ({"x": 1}, {"properties": {"x": {"type": "integer"}}, "required": ["x"]}, True),
        ({"x": True}, {"properties": {"x": {"type": "integer"}}}, False),
        ({"x": True}, {"properties": {"x": {"type": "boolean"}}}, True),
        ({"x": 1}, {"properties": {"x": {"anyOf": [{"type": "string"}]}}}, True),
        ({"x": 1}, {"properties": {"x": {"type": ["string", "null"]}}}, True),
        ({}, {"properties": {"x": {}}}, True),
        ({}, {"properties": {"x": {}}, "required": ["x"]}, False),
        ({"y": 1}, {"properties": {"x": {}}}, False),
        ({"y": 1}, {"properties": True}, True),
        ({"y": 1}, {}, True),
    ],
)
def test_arguments_fit_a_schema(given: dict[str, Any], schema: dict[str, Any], fits: bool) -> None:
    assert fitting(given, schema) is fits
