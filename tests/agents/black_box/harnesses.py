"""Programs that play rollouts through the gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gym_agents.black_box import Agent as BlackBox
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import (
    Engine,
    SmallSystem,
    environment,
    rollout_spec,
    small_system,
)

PLAIN = """
import json, os, sys, urllib.request

def ask(text, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


def judge(task: Task, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == "done"))


@asynccontextmanager
async def hall(agent: BlackBox, engine: Engine) -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=judge, description=""), "sample"))
        await system.add_model(engine)
        await system.add_agent({"black_box": agent}, slots=16)
        yield system


def row(**params: Any) -> bytes:
    return json.dumps({"responses_create_params": {"input": "weather?", **params}}).encode()


async def play(agent: BlackBox, engine: Engine, line: bytes | None = None, **more: Any) -> RolloutRecord:
    async with hall(agent, engine) as system:
        (record,) = await system.make(rollout_spec(line or row(), agent="black_box", **more))
    return record
