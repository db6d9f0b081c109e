"""A gateway before a model worker whose answers a test decides, over real HTTP."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
from gym_data.web.listener import serving
from gym_faces.gateway.admission import Admission
from gym_faces.gateway.capture import Captures
from gym_faces.gateway.gateway_server import Gateway
from gym_faces.gateway.model_pools import Pools
from gym_runtime.rpc.ask import Router
from gym_testing.background import background, settled
from gym_testing.small_system import Engine, SmallSystem, small_system


class RunningGateway(NamedTuple):
    """The gateway's address, what stands behind it, and a plain HTTP client."""

    url: str
    engine: Any
    gateway: Gateway
    captures: Captures
    system: SmallSystem
    http: aiohttp.ClientSession

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, Any, aiohttp.ClientResponse]:
        """Status, decoded body and the whole answer of a ``POST``."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {"content-type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.post(self.url + path, data=io.BytesIO(data), headers=named) as answer:
            content = await answer.read()
            decoded = msgspec.json.decode(content) if answer.content_type == "application/json" else content
            return answer.status, decoded, answer

    def at(self, rollout: str) -> str:
        """Where a rollout's addresses begin."""
        return f"/rollouts/{self.gateway.names.of(rollout)}"

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self.gateway.names.secret}"} if method == "DELETE" else {}
        async with self.http.request(method, self.url + path, headers=headers) as answer:
            return answer.status, msgspec.json.decode(await answer.read())


class Counter:
    """An engine that counts."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def respond(self, call: Any, context: Any) -> Any:
        raise AssertionError("nothing is answered")

    async def count(self, call: Any, context: Any) -> int:
        self.asked.append(call)
        return len(call.input) + 40


@asynccontextmanager
async def standing(
    *turns: Any,
    return_tokens: bool = False,
    captures: Captures | None = None,
    capacity: int = 1024,
    headers_s: float = 30.0,
    **more: Any,
) -> AsyncGenerator[RunningGateway]:
    """An engine that gives these answers, or one adapter, behind a gateway; nothing at all without them."""
    engine = turns[0] if len(turns) == 1 and hasattr(turns[0], "respond") else Engine(*turns)
    captures = captures or Captures()
    async with small_system() as system:
        router = Router(system.bus)
        async with background(router.run):
            if turns:
                await system.add_model(engine)
                await settled(lambda: router.views["model"].workers("policy"))
            pools = Pools(router, ("policy", "judge"), return_tokens=return_tokens)
            more = {"admission": Admission(capacity), **more}
            more = {"count": pools.ask, **more}
            gateway = Gateway(pools.ask, models=("policy", "judge"), captures=captures, **more)
            async with serving(gateway, headers_s=headers_s) as url, aiohttp.ClientSession() as http:
                yield RunningGateway(url, engine, gateway, captures, system, http)
