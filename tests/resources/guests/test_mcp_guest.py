"""Tools of MCP servers: a program in the sandbox, the SDK's server over HTTP, and hostile servers."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from gym_data.web.listener import serving
from gym_resources.mcp_tools import McpServer, mcp_connection, mcp_episode
from gym_resources.mcp_tools.listed_tools import cleaned
from gym_resources.mcp_tools.mcp_connection import Connection, Lines
from gym_runtime.environment import catalogue
from gym_runtime.errors import ResourceError, UsageError
from gym_runtime.messages.outcomes import Completed
from gym_testing.small_system import answer, function_call
from resources.guests.guest_runs import guest, made
from resources.guests.mcp_servers import COUNTER, choice, program, said, server, texts
from runtime.environment.image_samples import png

pytestmark = pytest.mark.anyio

ADD = function_call("count_add", '{"amount": 2}', "1"), function_call("count_add", '{"amount": 3}', "2")
LOOK = answer(function_call("look", "{}", "1"))
DONE = answer("\\boxed{B}")


async def test_a_program_in_the_sandbox(tmp_path: Path) -> None:
    name = f"mcp:{program(tmp_path)}?verify=mcqa"
    bad = function_call("count_add", "[", "1"), function_call("rm", "{}", "2")
    async with guest(name, answer(*ADD), answer(*bad), DONE) as system:
        first, second = await made(system, name, [choice(), choice(expected_answer="A")])
    assert (first.outcome, first.reward, second.reward) == (Completed(), 1.0, 0.0)
    row = json.loads(bytes(first.row))
    (tool,) = row["responses_create_params"]["tools"]
    assert (tool["name"], tool["description"]) == ("count_add", "Add. [2J")
    output = texts(bytes(first.row))
    assert output[:2] == ["count 2\n[link to http://x/y]", "count 5\n[link to http://x/y]"]
    assert "not a JSON object" in output[2]
    assert output[3] == "There is no tool 'rm'."
    assert texts(bytes(second.row)) == output
    assert len(row["mcp_tools"]) == 16


async def test_rows_that_are_made_meanwhile(tmp_path: Path) -> None:
    """The address is no name of an environment: runs that do not know their rows took it for one."""
    name = f"mcp:{program(tmp_path)}?verify=mcqa"
    async with guest(name, answer(*ADD), DONE, answer(*ADD), DONE) as system:
        async with system.client.standing_run(environment=name) as run:
            assert (await run.rollout(choice())).reward == 1.0
        groups = system.client.groups((row for row in [choice()]), environment=name, repeats=2)
        assert [group.rewards async for group in groups] == [[1.0, 1.0]]


@pytest.mark.slow
async def test_a_program_that_ends_is_a_failure(tmp_path: Path) -> None:
    name = f"mcp:{program(tmp_path)}?verify=mcqa"
    last = answer(
        function_call("count_add", '{"amount": 99}', "1"), function_call("count_add", '{"amount": 1}', "2")
    )
    async with guest(name, last, DONE) as system:
        (record,) = await made(system, name, [choice()], max_attempts=1)
    assert record.reward is None
    assert "has ended" in record.ending


async def test_a_program_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import nothing_of_this_name")
    name = f"mcp:{tmp_path / 'bad.py'}?verify=mcqa"
    async with guest(name, DONE) as system:
        (record,) = await made(system, name, [choice()], max_attempts=1)
    assert record.reward is None
    assert "No module named 'nothing_of_this_name'" in record.ending


@asynccontextmanager
async def sdk_server() -> AsyncGenerator[str]:
    """A server of the SDK; it answers in streams of events."""
    app = sdk_app()
    counted = {"count": 0}

    @app.tool(name="count_add")
    def add(amount: int) -> str:
        """Add."""
        counted["count"] += amount
        return f"count {counted['count']}"

    async with sdk_serving(app) as url:
        yield f"{url}/mcp"


def sdk_app() -> Any:
    mcpserver = pytest.importorskip("mcp.server.mcpserver", reason="needs pip install 'gym-runtime[dev]'")
    return mcpserver.MCPServer("counter")


@asynccontextmanager
async def sdk_serving(app: Any) -> AsyncGenerator[str]:
    uvicorn = pytest.importorskip("uvicorn", reason="needs pip install 'gym-runtime[dev]'")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app.streamable_http_app(), log_level="error", lifespan="on")
        served = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.serve, [listener])
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                served.should_exit = True


@pytest.mark.slow
@pytest.mark.parametrize("new", [False, True])
async def test_the_sdks_server(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if new:  # as if the server knew no handshake
        monkeypatch.setattr(mcp_connection.Connection, "_begin", _as_new)
    async with sdk_server() as url:
        name = f"mcp:{url}?verify=mcqa"
        wrong = answer(function_call("count_add", '{"amount": "x"}', "1"))
        async with guest(name, answer(*ADD), wrong, DONE) as system:
            (record,) = await made(system, name, [choice()])
    assert record.reward == 1.0, record.outcome
    output = texts(bytes(record.row))
    assert output[:2] == ["count 2", "count 5"]
    assert "amount" in output[2]


async def _as_new(connection: Any) -> None:
    connection._new = True


async def test_images_of_a_server_reach_the_model() -> None:
    data = base64.b64encode(png(2, 2)).decode()

    async def show(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        blocks = [{"type": "text", "text": "a"}, {"type": "image", "data": data, "mimeType": "image/svg"}]
        return said(asked, {"content": [*blocks, {"type": "image", "data": "?"}]})

    async with server(call=show) as url:
        name = f"mcp:{url}?verify=mcqa"
        async with guest(name, LOOK, DONE) as system:
            (record,) = await made(system, name, [choice()])
    ((first, image, broken),) = texts(bytes(record.row))
    assert (first["text"], image["image_url"]) == ("a", f"data:image/png;base64,{data}")
    assert "cannot be shown" in broken["text"]


async def large(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "application/json"})
    await stream.prepare(request)
    for _ in range(100):
        await stream.write(b" " * 2**20)
    return stream


async def endless(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await stream.prepare(request)
    while True:
        await stream.write(b": ping\n\ndata: {}\n\n" * 1000)
        await anyio.lowlevel.checkpoint()


async def redirect(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("http://169.254.169.254/")


async def other_id(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return said({"id": 4711}, {"content": []})


async def broken(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response([1])


async def many_values(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return said(asked, {"content": [{"type": "x", "y": [[]] * 500_000}]})


async def no_text(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":"\xff"}}' % asked["id"]
    return web.Response(body=body, content_type="application/json")


async def internal(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(
        {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32603, "message": "boom"}}
    )


async def gone(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "ending"),
    [
        (large, "more than 4 MiB"),
        (endless, "sent 10,000 messages, and not its answer"),
        (many_values, "more than 100,000 objects and lists"),
        (no_text, "cannot be shown"),
        (redirect, "answered 307"),
        (other_id, "did not answer tools/call"),
        (broken, "sent an invalid message"),
        (internal, "failed in 'look': boom"),
        (gone, "cannot be reached"),
    ],
)
async def test_a_hostile_answer_is_a_failure(call: Any, ending: str) -> None:
    async with server(call=call) as url:
        name = f"mcp:{url}?verify=mcqa"
        async with guest(name, LOOK, DONE) as system:
            (record,) = await made(system, name, [choice()], max_attempts=1)
    assert record.reward is None
    assert ending in record.ending


@pytest.mark.parametrize(
    ("schema", "ending"),
    [
        ({"$ref": "https://evil/x.json"}, "refers to elsewhere"),
        ({"properties": {"a": {"enum": ["x" * 70_000]}}}, "more than 64 KiB"),
        ([1], "no object"),
    ],
)
async def test_a_hostile_list_is_a_failure(schema: Any, ending: str) -> None:
    async with server({"tools": [{"name": "look", "inputSchema": schema}]}) as url:
        name = f"mcp:{url}?verify=mcqa"
        async with guest(name, DONE) as system:
            (record,) = await made(system, name, [choice()], max_attempts=1)
    assert record.reward is None
    assert ending in record.ending


async def test_a_server_that_refuses_to_list_its_tools_is_a_failure() -> None:
    async with server(list_=internal) as url:
        name = f"mcp:{url}?verify=mcqa"
        async with guest(name, DONE) as system:
            (record,) = await made(system, name, [choice()], max_attempts=1)
    assert record.reward is None
    assert "refuses to list its tools: boom" in record.ending


async def test_a_program_that_never_stops_writing_is_a_failure(tmp_path: Path) -> None:
    """It used to keep the event loop for ever: there was always a further line to read."""
    flood = tmp_path / "flood.py"
    flood.write_text("import os\ninput()\nwhile True: os.write(1, b'{}\\n' * 20_000)")
    server_ = McpServer(command=("python", str(flood)), folders=(str(flood),))
    with pytest.raises(ResourceError, match="sent 10,000 messages, and not its answer"):
        async with Connection(server_):
            pass


async def hanging(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    await anyio.sleep_forever()
    raise AssertionError


async def test_a_call_that_takes_too_long_is_an_error_that_the_model_reads() -> None:
    async with server(call=hanging) as url:
        name = f"mcp:{url}?verify=mcqa&call_s=0.5"
        async with guest(name, LOOK, DONE) as system:
            (record,) = await made(system, name, [choice()], timeout_s=20.0)
    assert (record.outcome, record.reward) == (Completed(), 1.0)
    assert texts(bytes(record.row)) == ["'look' did not answer within 0.5 s"]


async def test_a_list_that_takes_too_long_is_a_failure() -> None:
    async with server(list_=hanging) as url:
        name = f"mcp:{url}?verify=mcqa&call_s=0.5"
        async with guest(name, DONE) as system:
            (record,) = await made(system, name, [choice()], max_attempts=1, timeout_s=20.0)
    assert record.reward is None
    assert "did not answer tools/list within 0.5 s; call_s allows more" in record.ending


@pytest.mark.slow
async def test_a_program_goes_on_after_a_call_that_took_too_long(tmp_path: Path) -> None:
    """It is told that its answer is not awaited; one that comes late is not the next call's."""
    waits = """        if count == 2:
            note = json.loads(sys.stdin.readline())
            assert note["method"] == "notifications/cancelled"
            assert note["params"]["requestId"] == asked["id"]
"""
    path = tmp_path / "slow.py"
    path.write_text(COUNTER.replace("        content = [", f"{waits}        content = [", 1))
    server_ = McpServer(command=("python", str(path)), folders=(str(path),), call_s=1.0)
    async with Connection(server_) as connection:
        late, next_ = [await connection.call("count.add", {"amount": amount}) for amount in (2, 3)]
    assert late.is_error
    assert late.content[0]["text"] == "'count.add' did not answer within 1 s"
    assert next_.content[0]["text"] == "count 5"


@pytest.mark.slow
async def test_a_program_that_does_not_read_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "deaf.py"
    deaf = '    elif asked["method"] == "tools/call":\n        import time; time.sleep(600)\n'
    path.write_text(COUNTER.replace('    elif asked["method"] == "tools/call":\n', deaf))
    server_ = McpServer(command=("python", str(path)), folders=(str(path),), call_s=1.0)
    async with Connection(server_) as connection:
        assert (await connection.call("count.add", {"amount": 1})).is_error
        large = {"amount": 1, "rest": "x" * 2**20}
        assert (await connection.call("count.add", large)).is_error
        with pytest.raises(ResourceError, match="does not read what it is sent"):
            await connection.call("count.add", {"amount": 1})


@pytest.mark.parametrize("text", ["\x7f" * 4_000_000, "a\u200b" * 2_000_000])
def test_only_what_is_shown_of_a_long_text_is_read(text: str) -> None:
    began_s = time.thread_time()
    assert len(cleaned(text, 2000)) == 2001
    assert time.thread_time() - began_s < 0.02


def test_a_long_line_that_comes_in_bytes_is_copied_once() -> None:
    lines = Lines()
    assert lines.add(b"x" * 3_900_000) == []
    began_s = time.thread_time()
    assert [line for _ in range(1000) for line in lines.add(b"y")] == []
    assert time.thread_time() - began_s < 0.2
    assert [len(line) for line in lines.add(b"\na\n\nb")] == [3_901_000, 1, 0]
    assert bytes(lines.begun) == b"b"


async def test_a_list_that_changes_is_refused() -> None:
    listed = iter("abcdef")

    async def other(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return said(asked, {"tools": [{"name": next(listed)}]})

    mcp_episode._listed.clear()
    async with server(list_=other) as url:
        name = f"mcp:{url}?verify=mcqa"
        async with guest(name, DONE) as system:
            records = await made(system, name, [choice(), choice()], max_attempts=1)
    assert sorted(str(record.reward) for record in records) == ["1.0", "None"]
    assert any("other tools than in the rollouts before" in record.ending for record in records)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://127.0.0.1:1/mcp", "no verdict of its own"),
        ("http://127.0.0.1:1/mcp?verify=circle_count&x=1", "no setting 'x'"),
        ("http://127.0.0.1:1/mcp?verify=example_session_state_mgmt", "cannot judge"),
        ("ftp://x/mcp?verify=mcqa", "http://HOST"),
        ("http://u:p@x/mcp?verify=mcqa", "holds a user"),
        ("http://[x/mcp?verify=mcqa", "http://HOST"),
        ("http://x:99999/mcp?verify=mcqa", "http://HOST"),
        ("?verify=mcqa", "names no server"),
        ("http://x/mcp?verify=mcqa&call_s=nan", "call_s is 'nan'; it is a time in seconds"),
        ("bash?verify=mcqa&call_s=0", "call_s is 0; it is a time in seconds"),
        ("http://x/mcp?verify=mcqa&packages=mcp", "packages is a setting of programs only"),
        ("bash?verify=mcqa&key=KEY", "key is a setting of addresses only"),
        ("bash?verify=mcqa&folders=no-folder", "there is no 'no-folder' on this machine"),
        ('bash?verify=mcqa&packages=["msgspec","no-package"]', "'no-package' is not installed here"),
        ('bash?verify=mcqa&packages=["msgspec==1"]', "'msgspec==1' is not installed here.*without a version"),
        ('bash?verify=mcqa&packages=[""]', "'' is not installed here"),
        ("nothing_here.py?verify=mcqa", "no such file"),
        ("x.py?verify=mcqa&args=1", "args is a text or a list"),
    ],
)
def test_what_is_refused(address: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        catalogue.environment(f"mcp:{address}")


@pytest.mark.slow
async def test_a_key_is_named_and_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keyed(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return said(asked, {"content": [{"type": "text", "text": request.headers["authorization"]}]})

    async with server(call=keyed) as url:
        name = f"mcp:{url}?verify=mcqa&key=OWN_KEY"
        async with guest(name, LOOK, DONE) as system:
            (missing,) = await made(system, name, [choice()], max_attempts=1)
            assert "OWN_KEY is not set" in missing.ending
            monkeypatch.setenv("OWN_KEY", "s3cret")
            (record,) = await made(system, name, [choice()])
    assert texts(bytes(record.row)) == ["Bearer s3cret"]


class NemoServer:
    """A resources server of NeMo Gym that offers its tools over MCP, each session by its header."""

    def __init__(self, *, tools: bool = True) -> None:
        self.counts: dict[str, int] = {}
        self._tools = tools

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/seed_session", self._seed)
        app.router.add_post("/mcp", self._mcp)
        app.router.add_post("/verify", self._verify)
        return app

    async def _seed(self, request: web.Request) -> web.Response:
        token = f"secret-{len(self.counts)}"
        self.counts[token] = 0
        about = {"url_path": "/mcp", "transport": "http", "headers": {"X-NeMo-Gym-Session-Token": token}}
        answer = web.json_response({"mcp": about} if self._tools else {})
        answer.set_cookie("session", token)
        return answer

    async def _mcp(self, request: web.Request) -> web.Response:
        asked = await request.json()
        token = request.headers["x-nemo-gym-session-token"]
        if asked["method"] == "tools/list":
            return said(asked, {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]})
        if asked["method"] == "tools/call":
            self.counts[token] += asked["params"]["arguments"]["amount"]
            return said(asked, {"content": [{"type": "text", "text": str(self.counts[token])}]})
        return said(asked, {}) if "id" in asked else web.Response(status=202)

    async def _verify(self, request: web.Request) -> web.Response:
        return web.json_response({"reward": float(self.counts[request.cookies["session"]])})


async def test_a_server_of_nemo_gym_with_its_tools_over_mcp() -> None:
    add = answer(function_call("add", '{"amount": 2}', "1"))
    row = {"responses_create_params": {"input": "Add."}}
    async with serving(NemoServer(), stop_s=0.1) as url:
        name = f"nemo-gym:{url}?mcp=true"
        async with guest(name, add, add, answer("done")) as system:
            records = await made(system, name, [row] * 2)
    assert [record.reward for record in records] == [4.0, 4.0]
    assert texts(bytes(records[0].row)) == ["2", "4"]
    async with serving(NemoServer(tools=False), stop_s=0.1) as url:
        name = f"nemo-gym:{url}?mcp=true"
        async with guest(name, add) as system:
            (record,) = await made(system, name, [row], max_attempts=1)
    assert "offers no tools over MCP" in record.ending


async def test_a_server_of_nemo_gym_whose_tools_the_sdk_serves() -> None:
    """The routes of a resources server beside the SDK's own, with a token and a cookie for each session."""
    app = sdk_app()
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    counts: dict[str, int] = {}

    @app.custom_route("/seed_session", methods=["POST"])
    async def seed(request: Request) -> Response:
        assert (await request.json())["responses_create_params"]["input"] == "Add."
        token = f"signed.{len(counts)}"
        counts[token] = 0
        headers = {"X-NeMo-Gym-Session-Token": token}
        about = {"server_name": "counter", "url_path": "/mcp", "transport": "http", "headers": headers}
        answer = JSONResponse({"mcp": about})
        answer.set_cookie("CounterServer___counter", token)
        return answer

    @app.custom_route("/verify", methods=["POST"])
    async def verify(request: Request) -> Response:
        body = await request.json()
        count = counts[request.cookies["CounterServer___counter"]]
        calls = [one["name"] for one in body["response"]["output"] if one["type"] == "function_call"]
        return JSONResponse({**body, "reward": float(count == 4 and calls == ["count_add"] * 2)})

    async def add(amount: int, ctx: Any) -> str:
        """Add."""
        token = ctx.request_context.request.headers["x-nemo-gym-session-token"]
        counts[token] += amount
        return f"count {counts[token]}"

    context = pytest.importorskip("mcp.server.mcpserver").Context
    add.__annotations__ = {"amount": int, "ctx": context, "return": str}
    app.tool(name="count_add")(add)
    call = answer(function_call("count_add", '{"amount": 2}', "1"))
    row = {"responses_create_params": {"input": "Add."}}
    async with sdk_serving(app) as url:
        name = f"nemo-gym:{url}?mcp=true"
        async with guest(name, call, call, answer("done")) as system:
            records = await made(system, name, [row] * 3)
    assert [record.reward for record in records] == [1.0] * 3, records[0].ending
    assert texts(bytes(records[0].row)) == ["count 2", "count 4"]
    assert not any(b"signed." in bytes(record.row) for record in records)
