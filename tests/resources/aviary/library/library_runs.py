"""Steps of an episode in the library's environments, and the tasks that they are of."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Reply
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.shapes import Episode
from resources.judging import usable

SUM: dict[str, Any] = {"task_idx": 0, "question": "What is 40 + 2?", "answer": 42}
PAGES = {
    "Ada Lovelace": "Ada Lovelace was a mathematician of London.\nShe wrote notes on an engine.",
    "Charles Babbage": "Charles Babbage was an engineer. He <planned> an engine & never finished it.",
}
QUESTION: dict[str, Any] = {
    "task_idx": 0,
    "question": "Who wrote notes on Babbage's engine?",
    "answer": "Ada Lovelace",
    "pages": PAGES,
}


def needed(name: str) -> Resource:
    environment = usable(name)
    return environment.resource


def row(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"responses_create_params": {"input": []}, **fields})


async def steps(
    resource: Resource, fields: dict[str, Any], *answers: list[Any]
) -> tuple[list[list[Any]], list[float], bool]:
    """What each answer got to read, what it was worth, and whether the last one ended the episode."""
    read: list[list[Any]] = []
    worth: list[float] = []
    over = False
    async with session_of(resource, row(fields)) as session:
        assert isinstance(session, Episode)
        await resource.reset(session)
        for answer in answers:
            assert not over
            step = await resource.step(session, Reply.of(*answer).raw)
            items = [msgspec.json.decode(item) for item in step.items]
            read.append([item.get("output", item.get("content")) for item in items])
            worth.append(step.reward)
            over = step.terminated
        assert (await resource.verify(session, Reply.of().raw)).reward == sum(worth)
    return read, worth, over
