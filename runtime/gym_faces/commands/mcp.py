"""``mcp``: the tools of one session over MCP, on standard input and output, for editors and other clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
from cyclopts import Parameter
from gym_runtime import Episode, ResourceError, Session, UsageError, Verdict, make_response
from gym_runtime.cli import AT_LEAST_ONE, formatting, run_async, terminal
from gym_runtime.environment import (
    NOT_FOUND,
    SERVER_ERROR,
    VALIDATION,
    LoadedEnvironment,
    catalogue,
    requirements,
)
from gym_runtime.files import lines_of
from gym_runtime.messages import FunctionCallOutput, decode_items
from msgspec import Raw, json

from gym_faces.gateway.mcp_api import MAX_BYTES, Called, ToolServer, content_of


def mcp(
    environment: str,
    /,
    *,
    row: Annotated[int, AT_LEAST_ONE] = 1,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,  # noqa: A002
) -> int:
    """Serve the tools of one session over MCP, on standard input and output.

    Name this command as a server in the settings of an editor or an agent. When the client leaves, the
    session is judged, without a transcript, and the reward is printed on standard error.

    Args:
        environment: An environment with tools.
        row: Which row, by its line; of the environment's examples or of the input.
        input: Rows, JSONL.
    """
    found = catalogue.environment(environment)
    requirements.require(found)
    return run_async(_serve, found, _row(input or found.examples, row))


def _row(path: Path, number: int) -> bytes:
    try:
        for at, line in lines_of(path):
            if at == number:
                return line
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    raise UsageError(f"{path} has no row {number}")


async def _serve(environment: LoadedEnvironment, row: bytes) -> int:
    resource, turn = environment.resource, anyio.Lock()
    session = await resource.open(row)

    tools: list[Raw] = []

    async def call(name: str, arguments: str) -> Called:
        nonlocal tools
        async with turn:  # a session's calls do not overlap
            called, later = await _called(environment, session, name, arguments)
            tools = [*tools, *later] if later else tools
        return called

    try:
        tools = await _offered(environment, session, row)
        async with anyio.create_task_group() as tasks:
            server = ToolServer(lambda: tools, call, tasks)
            if not server.names:
                raise UsageError(f"{environment.name} has no tools: its row is answered with a message")
            await _answer_lines(server)
            tasks.cancel_scope.cancel()
        verdict = await resource.verify(session, make_response(""))
    finally:
        await resource.close(session)
    if isinstance(verdict, Verdict):
        terminal.note(f"reward {formatting.reward(verdict.reward)}")
    return 0


async def _offered(environment: LoadedEnvironment, session: Session[Any], row: bytes) -> list[Raw]:
    """The tools of the row, else those of the environment; and those that an episode begins with."""
    params = environment.resource.task(row).responses_create_params
    own = [Raw(json.encode(one.definition())) for one in environment.resource.tools.values()]
    if not isinstance(session, Episode):
        return params.tools or own
    await environment.resource.reset(session)
    return [*(params.tools or own), *environment.resource.offered_tools(session)]


async def _called(
    environment: LoadedEnvironment, session: Session[Any], name: str, arguments: str
) -> tuple[Called, list[Raw]]:
    """What a call leads to, and the tools that an episode offers from then on."""
    resource, about = environment.resource, {"call_id": "call", "name": name, "arguments": arguments}
    later: list[Raw] = []
    if isinstance(session, Episode):
        step = await resource.step(session, make_response({"type": "function_call", **about}))
        items, later = step.items, step.tools
    else:
        output = await resource.call_tool(session, name, arguments)
        said = {"type": "function_call_output", "call_id": "call", "output": output}
        items = [Raw(json.encode(said))]
    outputs = [one for one in decode_items(items) if isinstance(one, FunctionCallOutput)]
    text = next((one.output for one in outputs if isinstance(one.output, str)), "")
    failed = text in (NOT_FOUND, SERVER_ERROR) or text.startswith(VALIDATION)
    return Called([block for one in outputs for block in content_of(one)], failed=failed), later


async def _answer_lines(server: ToolServer) -> None:
    """Answer each line of the standard input, until it ends."""
    writing = anyio.Lock()

    async def answer(line: bytes) -> None:
        if body := await server.answer_line(line):
            async with writing:
                await anyio.to_thread.run_sync(_write, body)

    async with anyio.create_task_group() as tasks:
        while line := await anyio.to_thread.run_sync(_read, abandon_on_cancel=True):
            if len(line) > MAX_BYTES:
                raise ResourceError(f"a line is longer than {MAX_BYTES >> 20} MiB", stage="mcp")
            if line.strip():
                tasks.start_soon(answer, line)


def _read() -> bytes:
    return sys.stdin.buffer.readline(MAX_BYTES + 1)


def _write(body: bytes) -> None:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()
