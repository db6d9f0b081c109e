"""The three shapes of a resource; rows and replies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gym_runtime import Environment, Episode, Reply, Session, Step, Task, Verdict
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import ResourceError, TaskError
from msgspec import Raw
from runtime.environment.resources import ROW, SILENCE, GoalTask
from tables import table


async def async_verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.goal)), fields={"hint": task.hint})


def plain_verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == str(task.goal)), fields={"hint": task.hint})


class AsyncSession(Session[GoalTask]):
    async def verify(self, reply: Reply) -> Verdict:
        return await async_verify(self.task, reply)


class PlainSession(Session[GoalTask]):
    def verify(self, reply: Reply) -> Verdict:
        return plain_verify(self.task, reply)


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [async_verify, plain_verify, AsyncSession, PlainSession])
async def test_functions_and_sessions_plain_or_async_judge_alike(shape: Any) -> None:
    resource = Resource(shape)
    assert resource.task_type is GoalTask
    session = await resource.open(ROW)
    assert await resource.verify(session, make_response("2")) == Verdict(1.0, fields={"hint": ""})
    assert await resource.verify(session, SILENCE) == Verdict(0.0, fields={"hint": ""})


class Countdown(Episode[GoalTask]):
    async def reset(self) -> str:
        return f"count down from {self.task.goal}"

    async def step(self, reply: Reply) -> Step:
        self.task.goal -= 1
        calls = {call.call_id: "noted" for call in reply.function_calls}
        return Step(
            observation=None if self.task.goal == 0 else "go on",
            reward=0.5,
            terminated=self.task.goal == 0,
            tool_outputs=calls,
            info={"left": self.task.goal},
        )


@pytest.mark.anyio
async def test_an_episodes_reward_is_the_sum_of_its_steps() -> None:
    resource = Resource(Countdown)
    session, other = await resource.open(ROW), await resource.open(ROW)
    assert isinstance(session, Countdown)
    assert [msgspec.json.decode(item) for item in await resource.reset(session)] == [
        {"role": "user", "content": "count down from 2"}
    ]
    call = {"type": "function_call", "call_id": "c", "name": "note", "arguments": "{}"}
    first = await resource.step(session, make_response(call))
    assert [msgspec.json.decode(item) for item in first.items] == [
        {"type": "function_call_output", "call_id": "c", "output": "noted"},
        {"role": "user", "content": "go on"},
    ]
    assert (first.reward, first.terminated) == (0.5, False)
    assert (await resource.step(session, make_response("1"))).terminated
    assert await resource.verify(session, SILENCE) == Verdict(1.0, fields={"left": 0})
    with pytest.raises(ResourceError, match="took no step; use an agent that does: agent='step_loop'"):
        await resource.verify(other, SILENCE)
    assert isinstance(other, Countdown)
    await resource.reset(other)
    assert await resource.verify(other, SILENCE) == Verdict(0.0)


@pytest.mark.anyio
async def test_only_episodes_have_steps() -> None:
    resource = Resource(async_verify)
    with pytest.raises(ResourceError, match="is not an Episode: it has no steps"):
        await resource.step(await resource.open(ROW), SILENCE)


def test_an_environment_names_its_shape() -> None:
    shapes = [Environment(resource=r, description="d").shape for r in (plain_verify, AsyncSession, Countdown)]
    assert shapes == ["verify", "session", "episode"]


@table(
    ("row", "message"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "Input data was truncated"),
        (b"", "Input data was truncated"),
        (b'{"goal": 2}', "Object missing required field `responses_create_params`"),
        (b'{"responses_create_params": {}}', "Object missing required field `goal`"),
        (b'{"responses_create_params": {}, "goal": [1]}', r"Expected `int`, got `array` - at `\$.goal`"),
        (b'{"responses_create_params": {}, "goal": null}', r"Expected `int`, got `null` - at `\$.goal`"),
        (b'{"responses_create_params": {"inputs": []}, "goal": 1}', "contains unknown field `inputs`"),
        (
            b'{"responses_create_params": {"input": 7}, "goal": 1}',
            "'responses_create_params.input': Expected",
        ),
        (
            b'{"responses_create_params": {"input": [{"content": "q"}]}, "goal": 1}',
            "missing required field `role`",
        ),
        (b'{"responses_create_params": {}, "goal": 1, "hint": "\xff"}', "utf-8"),
        (b'{"responses_create_params": {}, "goal": 1, "x": ' + b"[" * 100_000, "recursion"),
    ],
)
def test_a_row_that_does_not_fit_is_the_tasks_fault_and_says_where(row: bytes, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Resource(async_verify).task(row)


def test_a_row_may_have_fields_that_nobody_declared_and_numbers_as_text() -> None:
    task = Resource(async_verify).task(b'{"responses_create_params": {}, "goal": "7", "other": [1]}')
    assert isinstance(task, GoalTask)
    assert task.goal == 7


def test_a_tasks_own_check_is_a_task_error() -> None:
    class Even(Task):
        goal: int

        def __post_init__(self) -> None:
            if self.goal % 2:
                raise ValueError("'goal' must be even")

    def verify(task: Even, reply: Reply) -> Verdict:
        return Verdict(1.0)

    verify.__annotations__["task"] = Even
    with pytest.raises(TaskError, match="'goal' must be even"):
        Resource(verify).task(b'{"responses_create_params": {}, "goal": 3}')


def test_a_reply_reads_the_transcript() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "3"}
    user = {"role": "user", "content": "and now?"}
    reply = Reply.of("one", call, output, user, "two")
    assert (reply.text, reply.all_text) == ("two", "onetwo")
    assert [item.name for item in reply.function_calls] == ["add"]
    assert [item.output for item in reply.tool_outputs] == ["3"]
    assert Reply.of().text == ""


class Saved(Countdown):
    """Its state is an object, or another value."""

    def __init__(self, task: GoalTask) -> None:
        super().__init__(task)
        self.as_object = True
        self.restored: list[Any] = []

    async def save(self) -> Any:
        return {"goal": self.task.goal} if self.as_object else self.task.goal

    async def on_restore(self, saved: Any) -> None:
        self.restored.append(saved)
        self.task.goal = saved["goal"] if isinstance(saved, dict) else saved


@pytest.mark.anyio
@pytest.mark.parametrize("as_object", [True, False])
async def test_an_episode_that_is_restored_keeps_its_rewards(as_object: bool) -> None:
    resource = Resource(Saved)
    lost = await resource.open(ROW)
    assert isinstance(lost, Saved)
    lost.as_object = as_object
    await resource.reset(lost)
    await resource.step(lost, make_response("2"))
    session = await resource.open(ROW, restore=await resource.saved(lost))
    assert isinstance(session, Saved)
    assert session.restored == [{"goal": 1} if as_object else 1]
    assert await resource.verify(session, SILENCE) == Verdict(0.5, fields={"left": 1})
    assert (await resource.step(session, make_response("1"))).terminated
    assert await resource.verify(session, SILENCE) == Verdict(1.0, fields={"left": 0})


@pytest.mark.anyio
@pytest.mark.parametrize("state", [{"goal": 1}, 1])
async def test_an_episodes_state_of_an_earlier_version_is_its_authors_alone(state: Any) -> None:
    session = await Resource(Saved).open(ROW, restore=Raw(msgspec.json.encode(state)))
    assert isinstance(session, Saved)
    assert (session.restored, session.begun, session.total_reward) == ([state], True, 0.0)
