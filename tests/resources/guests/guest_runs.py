"""Rollouts of guests in a small system, and what they leave."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gym_agents.step_loop import Agent as StepLoop
from gym_agents.tool_loop import Agent as ToolLoop
from gym_runtime.environment import catalogue
from gym_runtime.messages.outcomes import RolloutRecord
from gym_testing.small_system import Engine, SmallSystem, Turn, small_system

OWN = Path(__file__).parent / "own"


@asynccontextmanager
async def guest(name: str, *turns: Turn | Engine, **roles: Engine) -> AsyncGenerator[SmallSystem]:
    """A system whose only environment is this guest, with models in roles."""
    async with small_system() as system:
        await system.add_resource(catalogue.environment(name))
        engines = [one for one in turns if isinstance(one, Engine)]
        await system.add_model(engines[0] if engines else Engine(*turns))
        for role, engine in roles.items():
            await system.add_model(engine, name=f"model-{role}", pool=role)
        await system.add_agent({"step_loop": StepLoop(), "tool_loop": ToolLoop()})
        yield system


def own_rows(name: str, size: int | None = None) -> list[dict[str, Any]]:
    """The rows that a guest makes itself."""
    generate = catalogue.environment(name).definition.generate
    assert generate is not None
    return list(generate(size, 0))


async def made(
    system: SmallSystem, name: str, rows: Iterable[dict[str, Any]], **more: Any
) -> list[RolloutRecord]:
    records = system.client.rollouts(list(rows), environment=name, ordered=True, **more)
    return [record async for record in records]


def result(record: RolloutRecord) -> dict[str, Any]:
    return json.loads(bytes(record.row))


def said(record: RolloutRecord) -> list[tuple[str, str]]:
    """The conversation, as roles (or types) and texts."""
    row = result(record)
    items = [*row["responses_create_params"]["input"], *row["response"]["output"]]
    found: list[tuple[str, str]] = []
    for item in items:
        content = item.get("content", item.get("output", item.get("arguments")))
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        found.append((item.get("role", item.get("type")), text))
    return found
