"""A recorded rollout, judged again: its calls are repeated on a fresh session, or its turns on an episode.

The tools' new answers do not go into the transcript: the verifier gets the response as it was recorded, and
the state that the recorded calls lead to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import Models
from gym_runtime.environment.shapes import Episode, Session
from gym_runtime.environment.verdict import Pending, Reply, Verdict
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.messages.images import Content
from gym_runtime.messages.responses import FunctionCall, FunctionCallOutput, Item, Message


async def rejudge(
    resource: Resource, row: Raw | bytes, response: Raw | bytes, models: Models | None = None
) -> Verdict | Pending:
    """The verdict on a recorded rollout: open, replay (unless the transcript says all), verify, close.

    Raises:
        TaskError: the row does not match the task, or the response cannot be decoded.
        ResourceError: the environment raised, or its reward is not a finite number.
    """
    reply = Reply(response)
    try:
        transcript = reply.items
    except UNREADABLE as error:
        raise TaskError(f"the recorded response cannot be read: {error}") from error
    if resource.session_type.judged_by_transcript:
        return await resource.verify(await resource.unopened(row, models), reply)
    async with session_of(resource, row, models) as session:
        if not resource.stateless:
            await replay(resource, session, transcript)
        return await resource.verify(session, reply)


async def replay(resource: Resource, session: Session[Any], transcript: Sequence[Item]) -> list[Content]:
    """Repeat a transcript's `executed` tool calls on a session, or its turns on an episode, in order.

    Calls of tool packs do not change the session, and are left out. Returns the environment's answers:
    tools' outputs, or observations as JSON.
    """
    if not isinstance(session, Episode):
        own = [call for call in executed(transcript) if call.name not in session.packs]
        return [await resource.call_tool(session, call.name, call.arguments) for call in own]
    observed_items = await resource.reset(session)
    for turn in turns(transcript):
        step = await resource.step(session, Reply.of_items(turn))
        observed_items += step.items
        if step.terminated or step.truncated:
            break
    return [bytes(item).decode() for item in observed_items]


def executed(transcript: Sequence[Item]) -> list[FunctionCall]:
    """A transcript's tool calls that were executed, in order: those with an output.

    A truncated answer, or the last answer, may contain calls without one. If an engine gives several calls
    the same ``call_id``, each output belongs to the nearest call before it.
    """
    answered: Counter[str] = Counter()
    found: list[FunctionCall] = []
    for item in reversed(transcript):
        if isinstance(item, FunctionCallOutput):
            answered[item.call_id] += 1
        elif isinstance(item, FunctionCall) and answered[item.call_id]:
            answered[item.call_id] -= 1
            found.append(item)
    return found[::-1]


def turns(transcript: Iterable[Item]) -> list[list[Item]]:
    """The items of each of the model's turns: tools' outputs and messages of other roles separate them.

    Two answers of the model with nothing between them (one has only reasoning) cannot be distinguished.
    """
    found: list[list[Item]] = [[]]
    for item in transcript:
        if isinstance(item, FunctionCallOutput) or (isinstance(item, Message) and item.role != "assistant"):
            found.append([])
        else:
            found[-1].append(item)
    return [turn for turn in found if turn]


@asynccontextmanager
async def session_of(
    resource: Resource, row: Raw | bytes, models: Models | None = None
) -> AsyncGenerator[Session[Any]]:
    """A fresh session for a row, closed at the end whatever happens."""
    session = await resource.open(row, models)
    try:
        yield session
    finally:
        await resource.close(session)
