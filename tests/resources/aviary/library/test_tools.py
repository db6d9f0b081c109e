"""The tools that a model is offered are those of Aviary's library."""

from __future__ import annotations

import json

import gym_runtime
import msgspec
import pytest
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.shapes import Episode
from resources.aviary.library.library_runs import QUESTION, SUM, needed, row

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_the_tools_come_from_the_library(name: str) -> None:
    resource = needed(name)
    async with session_of(resource, row(SUM if name == "gsm8k_aviary" else QUESTION)) as session:
        assert isinstance(session, Episode)
        assert resource.offered_tools(session) == []
        [question] = await resource.reset(session)
        offered = [msgspec.json.decode(tool) for tool in resource.offered_tools(session)]
    assert msgspec.json.decode(question)["role"] == "user"
    assert [tool["name"] for tool in offered] == (
        ["calculator", "submit_answer"] if name == "gsm8k_aviary" else ["search", "lookup", "submit_answer"]
    )
    for tool in offered:
        assert tool["type"] == "function"
        assert tool["description"]
        [(parameter, schema)] = tool["parameters"]["properties"].items()
        assert tool["parameters"]["required"] == [parameter]
        assert schema["type"] == "string"


@pytest.mark.slow
async def test_a_model_is_offered_the_tools() -> None:
    needed("hotpotqa_aviary")
    task = {"responses_create_params": {"input": []}, **QUESTION}
    name = "hotpotqa_aviary"
    async with gym_runtime.connect(model="scripted/tool-then-message", environments=[name]) as gym:
        [record] = [record async for record in gym.rollouts([task], environment=name)]
    written = json.loads(bytes(record.row))
    offered = written["responses_create_params"]["tools"]
    called, answered = written["response"]["output"][:2]
    assert [tool["name"] for tool in offered] == ["search", "lookup", "submit_answer"]
    assert called["name"] == "search"
    assert answered["type"] == "function_call_output"
    assert isinstance(record.reward, float)
