"""Several engines behind one adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from gym_faces.dialects.chat_request import ChatVariant
from gym_models.wire import endpoint
from gym_models.wire.endpoint import Endpoint
from gym_models.wire.engine import Engine
from gym_models.wire.replicas import Replicas
from gym_runtime.messages.calls import ModelAnswer
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call
from msgspec.structs import replace

LOOK_S = 0.02


def fleet(*urls: str, look_s: float = LOOK_S, public: bool = False, **more: Any) -> Replicas[Engine]:
    """These engines; ``public`` ones are known by their calls alone, as those of a provider."""

    def at(url: str, settings: ModelSettings) -> Endpoint:
        return replace(endpoint.at(url, settings), private=not public)

    def engine(endpoint: Endpoint) -> Engine:
        return Engine(endpoint, model="stub", api="responses", dialect=ChatVariant())

    settings = ModelSettings(provider="openai", name="stub", urls=urls, **more)
    return Replicas(settings, engine, at=at, look_s=look_s)


async def ask(replicas: Replicas[Engine], rollout: str = "r.0.0", **more: Any) -> ModelAnswer:
    where = context(rollout=rollout, **more)
    return await replicas.ask(where, lambda engine: engine.respond(model_call(), where))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(15):
        while not condition():
            await anyio.sleep(0.005)


def up(replicas: Replicas[Engine]) -> set[str]:
    return {engine.endpoint.url for engine in replicas.engines()}


def homes(replicas: Replicas[Engine], url: str) -> str:
    """A rollout whose home is that replica."""
    from gym_models.wire.routing import choose

    names = (f"r.{number}.0" for number in range(1000))
    return next(name for name in names if (found := choose(name, replicas.states())) and found.url == url)
