"""Environments of authors on `McpEpisode`."""

from __future__ import annotations

import json

import pytest
from gym_resources.mcp_tools import McpEpisode, McpServer
from gym_runtime import Reply, Task, make_response
from gym_runtime.environment import Resource
from gym_runtime.errors import ResourceError
from gym_testing.checks.hints import MUTABLE

pytestmark = pytest.mark.anyio


class Counting(McpEpisode[Task]):
    server = McpServer(url="http://127.0.0.1:9/mcp")

    async def open(self) -> None: ...


class Greeting(McpEpisode[Task]):
    async def open(self) -> None: ...

    async def reset(self) -> str:
        return "Hello."


async def test_an_environment_that_forgets_the_methods_of_its_base_is_told_what_to_call() -> None:
    row = json.dumps({"responses_create_params": {"input": "go"}}).encode()
    for shape, played, missing in ((Counting, "reset", "open"), (Greeting, "step", "reset")):
        resource = Resource(shape)
        session = await resource.open(row)
        with pytest.raises(
            ResourceError, match=rf"begin your {missing} with 'await super\(\).{missing}\(\)'"
        ):
            await (session.reset() if played == "reset" else session.step(Reply(make_response("x"))))
    assert not isinstance(McpEpisode.tools, MUTABLE)  # each author was told that it is kept on the class
