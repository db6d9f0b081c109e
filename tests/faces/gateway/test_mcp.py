"""Tools over MCP: both forms of the protocol, with the SDK's client and by hand; what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest
from faces.gateway.running_gateway import RunningGateway, standing
from gym_faces.gateway import Called, ToolServer
from gym_faces.gateway.mcp_api import MAX_CALLS
from gym_runtime.errors import SessionLost
from msgspec import Raw

pytestmark = pytest.mark.anyio

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
}
ADD = {"type": "function", "name": "add", "description": "Add.", "parameters": PARAMETERS}
NEW = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Counter:
    """A tool with a state; it waits while `held`, and the session is lost at 13."""

    def __init__(self) -> None:
        self.count = 0
        self.tools: list[Raw] = []
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.go.set()

    async def call(self, name: str, arguments: str) -> Called:
        self.begun.set()
        await self.go.wait()
        amount = json.loads(arguments)["amount"]
        if amount == 13:
            raise SessionLost("the worker is gone")
        if amount < 0:
            return Called([{"type": "text", "text": "not below 0"}], failed=True)
        self.count += amount
        return Called([{"type": "text", "text": str(self.count)}], failed=False)


class Stand(NamedTuple):
    gateway: RunningGateway
    counter: Counter

    @property
    def path(self) -> str:
        return self.gateway.at("run.0.0") + "/mcp"

    async def old(self, method: str, /, **params: Any) -> tuple[int, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, said, _ = await self.gateway.post(self.path, body)
        return status, said

    async def new(self, method: str, /, *, headers: dict[str, str] | None = None, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": "a", "method": method, "params": {"_meta": META, **params}}
        sent = {"mcp-protocol-version": NEW, "mcp-method": method, "mcp-name": params.get("name", "")}
        status, said, _ = await self.gateway.post(self.path, body, **{**sent, **(headers or {})})
        return status, said


@asynccontextmanager
async def stand() -> AsyncGenerator[Stand]:
    counter = Counter()
    async with anyio.create_task_group() as tasks:
        search = {"type": "web_search"}
        counter.tools = [Raw(json.dumps(one).encode()) for one in (ADD, search)]
        tools = ToolServer(lambda: counter.tools, counter.call, tasks)
        async with standing(tools=tools, anonymous=False) as gateway:
            yield Stand(gateway, counter)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["auto", "legacy", NEW])
@pytest.mark.slow
async def test_the_sdks_client_lists_and_calls(mode: str) -> None:
    mcp = pytest.importorskip("mcp", reason="needs pip install 'gym-runtime[dev]'")
    async with stand() as here, mcp.Client(here.gateway.url + here.path, mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description, tool.input_schema) == ("add", "Add.", PARAMETERS)
        answers = [await client.call_tool("add", {"amount": amount}) for amount in (2, 3, -1)]
    assert [(one.content[0].text, one.is_error) for one in answers] == [
        ("2", False),
        ("5", False),
        ("not below 0", True),
    ]


@pytest.mark.parametrize("mode", ["legacy", NEW])
async def test_a_tool_that_is_offered_later(mode: str) -> None:
    """The SDK's client is told before the answer to its call, or lists again by itself."""
    mcp = pytest.importorskip("mcp", reason="needs pip install 'gym-runtime[dev]'")
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(type(message).__name__)

    async with (
        stand() as here,
        mcp.Client(here.gateway.url + here.path, mode=mode, message_handler=hear) as client,
    ):
        await client.list_tools()
        await client.call_tool("add", {"amount": 1})
        assert heard == []
        here.counter.tools = [*here.counter.tools, Raw(json.dumps({**ADD, "name": "sum"}).encode())]
        for _ in range(2):
            await client.call_tool("add", {"amount": 1})
        assert heard == (["ToolListChangedNotification"] if mode == "legacy" else [])
        assert [one.name for one in (await client.list_tools()).tools] == ["add", "sum"]
        assert (await client.call_tool("sum", {"amount": 1})).content[0].text == "4"
        status, said = await here.old("tools/call", name="sum", arguments={"amount": 1})
        assert (status, said["result"]["content"][0]["text"]) == (200, "5")


async def test_both_forms_by_hand() -> None:
    async with stand() as here:
        _, began = await here.old("initialize", protocolVersion="2025-06-18")
        assert began["result"]["protocolVersion"] == "2025-06-18"
        _, began = await here.old("initialize", protocolVersion="1999-01-01")
        assert began["result"]["protocolVersion"] == "2025-11-25"
        assert (await here.old("ping"))[1] == {"jsonrpc": "2.0", "id": 1, "result": {}}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await here.gateway.post(here.path, note))[0] == 202
        status, said = await here.new("server/discover")
        assert status == 200
        assert said["result"]["supportedVersions"][0] == NEW
        status, said = await here.new("tools/call", name="add", arguments={"amount": 4})
        assert (status, said["id"]) == (200, "a")
        content = [{"type": "text", "text": "4"}]
        assert said["result"] == {"content": content, "isError": False, "resultType": "complete"}
        # The key of a rollout serves as well as its address.
        key = f"gym-{here.gateway.gateway.names.of('run.0.0')}"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        status, said, _ = await here.gateway.post("/mcp", body, authorization=f"Bearer {key}")
        assert (status, [one["name"] for one in said["result"]["tools"]]) == (200, ["add"])


async def test_what_is_refused() -> None:
    async with stand() as here:
        post, path = here.gateway.post, here.path
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        for body, code in [
            (b"{", -32700),
            (b"[" * 100_000, -32600),
            ([call], -32600),
            ({"id": 1, "method": "ping"}, -32600),
            ({**call, "id": None}, -32600),
            ({**call, "id": {"a": 1}}, -32600),
        ]:
            status, said, _ = await post(path, body)
            assert (status, said["error"]["code"], said["id"]) == (400, code, None)
        params: Any
        for params, code in [
            ({"name": "rm", "arguments": {}}, -32602),
            ({"name": "add", "arguments": [1]}, -32602),
            ({"name": "add", "arguments": "1"}, -32602),
        ]:
            status, said, _ = await post(path, {**call, "params": params})
            assert (status, said["error"]["code"], said["id"]) == (200, code, 1)
        assert (await here.old("sampling/createMessage"))[1]["error"]["code"] == -32601
        for headers, params, status, code in [
            ({"mcp-method": "tools/list"}, {"name": "add"}, 400, -32020),
            ({"mcp-name": "sub"}, {"name": "add"}, 400, -32020),
            ({"mcp-protocol-version": "2025-11-25"}, {"name": "add"}, 400, -32020),
            ({"mcp-protocol-version": "2031-01-01"}, {"name": "add"}, 400, -32020),
            ({}, {"name": "add", "_meta": {}}, 400, -32602),
            ({}, {"name": "rm"}, 400, -32602),
        ]:
            found, said = await here.new("tools/call", headers=headers, **params)
            assert (found, said["error"]["code"]) == (status, code), (headers, params)
        assert (await here.new("prompts/list"))[0] == 404
        status, said, _ = await post(path, {"jsonrpc": "2.0", "method": "x"}, mcp_protocol_version="2031")
        assert (status, said["error"]["data"]["supported"]) == (400, [NEW])
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await post("/rollouts/run.0.1/mcp", ping))[0] == 401
        assert (await post("/mcp", ping))[0] == 401
        assert (await post(path, ping, origin="http://evil"))[0] == 403
        assert (await post(path, ping, host="evil.example"))[0] == 403
        assert (await post(path, b" " * (5 * 2**20)))[0] == 413
        async with here.gateway.http.get(here.gateway.url + path) as answer:
            assert answer.status == 405
        assert here.counter.count == 0


async def test_an_error_of_the_runtime_is_the_calls() -> None:
    async with stand() as here:
        _, said = await here.old("tools/call", name="add", arguments={"amount": 13})
        assert said["error"] == {"code": -32603, "message": "the worker is gone"}


async def test_a_client_that_left_gets_its_answer_later() -> None:
    """The call has its effect once; the same request after its answer was read is a new call."""
    async with stand() as here:
        here.counter.go = anyio.Event()
        ask = {"name": "add", "arguments": {"amount": 2}}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: here.old("tools/call", **ask))
            await here.counter.begun.wait()
            tasks.cancel_scope.cancel()
        while not here.gateway.gateway._tools._unread:  # type: ignore[union-attr]
            await anyio.sleep(0.01)
        here.counter.go.set()
        assert [(await here.old("tools/call", **ask))[1]["result"]["content"][0]["text"] for _ in "ab"] == [
            "2",
            "4",
        ]


@pytest.mark.slow
async def test_calls_of_clients_that_have_left_are_bounded() -> None:
    counter = Counter()
    counter.go = anyio.Event()
    body = {"jsonrpc": "2.0", "method": "tools/call"}
    large = {"amount": 1, "note": "x" * 2**20}

    async def left(server: ToolServer, number: int, arguments: dict[str, Any], after_s: float = 0.01) -> str:
        asked = {**body, "id": number, "params": {"name": "add", "arguments": arguments}}
        with anyio.move_on_after(after_s):
            async with server.answering({}, json.dumps(asked).encode()) as answer:
                return answer.body.decode()
        return ""

    async with anyio.create_task_group() as tasks:
        for most, arguments in ((MAX_CALLS, {"amount": 1}), (15, large)):
            counter.tools = [Raw(json.dumps(ADD).encode())]
            server = ToolServer(lambda: counter.tools, counter.call, tasks)
            assert [await left(server, number, arguments) for number in range(most)] == [""] * most
            assert "too many calls are in progress" in await left(server, most, arguments, 30.0)
            assert {len(key) for key in server._unread} == {32}
        counter.go.set()
        while server._running:
            await anyio.sleep(0.01)
        assert server._running_bytes == 0
        assert "result" in await left(server, 99, {"amount": 1}, 30.0)
        tasks.cancel_scope.cancel()


async def test_arguments_reach_the_tool_as_they_are_and_null_means_none() -> None:
    """Megabytes of fields are not decoded, which would hold the event loop for 0.1 s."""
    many = b"{%b}" % b",".join(b'"k%d":1' % number for number in range(300_000))
    received: list[str] = []

    async def call(name: str, arguments: str) -> Called:
        received.append(arguments)
        return Called([], failed=False)

    async with anyio.create_task_group() as tasks:
        server = ToolServer(lambda: [Raw(json.dumps(ADD).encode())], call, tasks)
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments": %b }}'
        for arguments in (b"null", many):
            began_s = time.thread_time()
            async with server.answering({}, body % arguments) as answer:
                assert b"result" in answer.body
            assert time.thread_time() - began_s < 0.05
    assert received == ["{}", many.decode()]


async def test_arguments_that_are_not_utf_8_are_refused() -> None:
    async with stand() as here:
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":"\xff"}}}'
        )
        _, said, _ = await here.gateway.post(here.path, body)
        assert said["error"]["code"] == -32602


async def test_a_gateway_without_tools_has_no_such_address() -> None:
    async with standing() as gateway:
        assert (await gateway.post("/mcp", {}))[0] == 404
