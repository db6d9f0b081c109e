"""Steps of an episode in a notebook, and the tasks that they are of."""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.environment.shapes import Episode

QUESTION = {"task_idx": 0, "question": "How many?", "ideal": "48", "capsule_uuid": "seedlings"}
PROBLEM = {
    "id": "seedlings",
    "hypothesis": "Light matters.",
    "objective": "Test it.",
    "answer": True,
    "rubric": "* 4 points: a test.",
    "max_points": 4,
}


def resource(name: str = "bixbench_aviary") -> Resource:
    return catalogue.environment(name).resource


async def steps(name: str, task: bytes, *answers: list[Any]) -> list[tuple[list[str], bool]]:
    """What each answer got to read, and whether it ended the episode."""
    found: list[tuple[list[str], bool]] = []
    models = ScriptedAnswers({"judge": [], "rubric": []}).models(resource(name).roles)
    async with session_of(resource(name), task, models) as session:
        assert isinstance(session, Episode)
        await resource(name).reset(session)
        for answer in answers:
            step = await resource(name).step(session, Reply.of(*answer).raw)
            items = [msgspec.json.decode(item) for item in step.items]
            found.append(([item.get("output", item.get("content")) for item in items], step.terminated))
    return found
