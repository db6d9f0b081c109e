"""Episodes on an Aviary server, and what it holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from gym_resources.aviary_episodes import task_server
from gym_runtime import Reply
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.resource import Resource
from gym_runtime.environment.shapes import Episode
from gym_runtime.messages.calls import StepAnswer
from stubs import stub_aviary

REAL = pytest.mark.skipif(not stub_aviary.installed(), reason="the library's server is not installed")


def resource() -> Resource:
    return catalogue.environment("aviary_remote").resource


async def running() -> list[str]:
    """The environments that the real server holds."""
    headers = {"X-API-Key": stub_aviary.KEY}
    async with ClientSession(headers=headers) as http, http.get(f"{task_server.SERVER.base_url}/info") as got:
        return (await got.json())["running_env_ids"]


async def played(task: bytes, *answers: list[Any]) -> tuple[list[Any], list[Any], list[StepAnswer]]:
    """The first items, the tools, and what each answer led to."""
    async with session_of(resource(), task) as session:
        assert isinstance(session, Episode)
        first = [msgspec.json.decode(item) for item in await resource().reset(session)]
        tools = [msgspec.json.decode(tool) for tool in resource().offered_tools(session)]
        return first, tools, [await resource().step(session, Reply.of(*one).raw) for one in answers]


def items(step: StepAnswer) -> list[Any]:
    return [msgspec.json.decode(item) for item in step.items]
