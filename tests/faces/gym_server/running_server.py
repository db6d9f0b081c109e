"""A server before a small system whose model a test decides, over real HTTP."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import aiohttp
import anyio
import msgspec
from gym_data.web.listener import serving
from gym_faces.gym_server import GymServer
from gym_faces.gym_server.asked_runs import Runs
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.errors import UsageError
from gym_runtime.workers.resource_worker import ResourceWorker
from gym_testing.small_system import Engine, SmallSystem, Turn, answer, function_call, small_system
from time_limits import busy

COUNTER = "example_session_state_mgmt"
INCREMENT = function_call("increment_counter", '{"count": 1}', "c1")
COUNTED = [answer(INCREMENT), answer("done")]


def counter_row(**fields: Any) -> dict[str, Any]:
    """A row of the counter environment, as a dataset of NeMo Gym has it."""
    row = {"responses_create_params": {"input": "Bring it to 4."}, "initial_count": 3, "expected_count": 4}
    return {**row, "agent_ref": {"type": "responses_api_agents", "name": f"{COUNTER}_simple_agent"}, **fields}


def choice_row(**fields: Any) -> dict[str, Any]:
    """A row of ``mcqa``, which has no state; its right answer is B."""
    row: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "user", "content": "A or B?"}]},
        "options": [{"A": "no"}, {"B": "yes"}],
        "expected_answer": "B",
        "grading_mode": "strict_single_letter_boxed",
    }
    return {**row, "agent_ref": {"name": "mcqa_simple_agent"}, **fields}


def response(*items: dict[str, Any]) -> dict[str, Any]:
    """A response as a client makes it that called the model itself."""
    about = {"id": "resp_1", "created_at": 0, "model": "m", "object": "response", "tools": []}
    return {**about, "output": list(items), "parallel_tool_calls": True, "tool_choice": "auto"}


class Answered(NamedTuple):
    status: int
    body: Any
    cookies: dict[str, str]
    headers: Any


class RunningServer(NamedTuple):
    """The server's address, what stands behind it, and a plain HTTP client."""

    url: str
    engine: Engine
    server: GymServer
    runs: Runs
    system: SmallSystem
    resource: ResourceWorker
    http: aiohttp.ClientSession

    async def post(
        self, path: str, body: object, cookies: dict[str, str] | None = None, **headers: str
    ) -> Answered:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {"content-type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.post(
            self.url + path, data=io.BytesIO(data), headers=named, cookies=cookies
        ) as found:
            return await _answered(found)

    async def get(self, path: str, **headers: str) -> Answered:
        async with self.http.get(self.url + path, headers=headers) as found:
            return await _answered(found)


async def _answered(found: aiohttp.ClientResponse) -> Answered:
    content = await found.read()
    decoded = msgspec.json.decode(content) if found.content_type == "application/json" else content.decode()
    cookies = {name: one.value for name, one in found.cookies.items()}
    return Answered(found.status, decoded, cookies, found.headers)


async def _served(client: Client) -> list[LoadedEnvironment]:
    """The environments; a worker of a busy machine may count as gone for a moment."""
    with anyio.fail_after(10 * busy()):
        while True:
            with suppress(UsageError):
                return await client.environments()
            await anyio.sleep(0.05)


@asynccontextmanager
async def running_server(
    *turns: Turn,
    environments: tuple[LoadedEnvironment, ...] = (),
    engine: Engine | None = None,
    **more: Any,
) -> AsyncGenerator[RunningServer]:
    """The counter and ``mcqa``, or other environments, and a model that gives these answers."""
    engine = engine or Engine(*(turns or COUNTED))
    hosted = environments or (catalogue.environment(COUNTER), catalogue.environment("mcqa"))
    async with small_system() as system:
        resource = await system.add_resource(*hosted)
        await system.add_model(engine)
        await system.add_agent(slots=64)
        found = await _served(system.client)
        server = GymServer(system.client, found, **more)
        async with (
            server.working() as runs,
            serving(server) as url,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        ):
            yield RunningServer(url, engine, server, runs, system, resource, http)
