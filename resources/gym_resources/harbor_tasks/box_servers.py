"""MCP servers and skills within the box of a Harbor task: what the agent gets of them.

A server is a program that the task names, started in the box when its tools are first asked for, and again
when it has ended. A message is a line into a named pipe, and its answers are lines of a file: the box has
commands only. Both are the agent's to change, as all in its box is: they only reach the model, and no
reward depends on them.

Source: Harbor 0.26 (`harbor.models.task.config.MCPServerConfig`; skills as in its agent Terminus 2).
"""

from __future__ import annotations

import math
import shlex
from base64 import b64decode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from gym_runtime import Image, ResourceError
from gym_runtime.errors import UNREADABLE

from gym_resources.harbor_tasks.task_box import TaskBox
from gym_resources.harbor_tasks.task_file import McpServerPart
from gym_resources.mcp_tools import McpServer
from gym_resources.mcp_tools.listed_tools import McpTool, cleaned, model_names
from gym_resources.mcp_tools.mcp_connection import MAX_BYTES, Connection
from gym_resources.mcp_tools.mcp_episode import shown

ANSWER_LIMIT_S = 60.0
MAX_MESSAGES = 10_000
"""That a server writes before an answer."""
MAX_SKILLS = 100
PIECE_BYTES = 256 << 10
_START = """
mkdir -p {at} && cd {at} || exit 1
[ -f pid ] && kill -0 "$(cat pid)" 2>/dev/null && exit 0
rm -f in out; mkfifo in && : >out || exit 1
( cd {directory} && exec {command} ) <>{at}/in >{at}/out 2>{at}/err &
echo $! >pid
echo started
"""
_SEND = """
cd {at} && kill -0 "$(cat pid)" 2>/dev/null || exit 3
cat >in
"""
_READ = """
cd {at} || exit 3
tail -c +{begin} out | head -c {most} | base64 | tr -d '\\n'
kill -0 "$(cat pid)" 2>/dev/null || exit 4
"""
_SKILLS = """
[ -d {at} ] || exit 0
find {at} -mindepth 2 -maxdepth 2 -name SKILL.md -type f | sort | head -n {most} | while read -r path; do
  echo "$path $(head -c 4096 "$path" | base64 | tr -d '\\n')"
done
"""


class _Line:
    """A server in the box as what a connection's messages travel by."""

    def __init__(self, box: TaskBox, part: McpServerPart, user: str | int | None) -> None:
        self.box, self._part, self._user = box, part, user
        self._at = f"/tmp/.mcp-{part.name}"
        self._until_s, self._read = math.inf, 0
        self._lines: deque[bytes] = deque()
        self._rest = b""

    async def start(self) -> bool:
        """Start it unless it runs; whether it was started.

        Raises:
            ResourceError: it cannot be started.
        """
        command = shlex.join([self._part.command or "", *self._part.args])
        script = _START.format(at=self._at, command=command, directory=shlex.quote(self.box.directory))
        done = await self.box.run(script, timeout_s=ANSWER_LIMIT_S, user=self._user)
        if done.exit_code != 0:
            raise self._failed("does not start", done.stderr)
        if started := b"started" in done.stdout:
            self._read, self._lines, self._rest = 0, deque(), b""
        return started

    async def exchange(
        self, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, bytes | None]:
        self._until_s = anyio.current_time() + ANSWER_LIMIT_S
        await self._send(msgspec.json.encode(request))
        for _ in range(MAX_MESSAGES if "id" in request else 0):
            await checkpoint()  # of lines that have come already, none waits for anything
            if reply := (yield await self._line()):
                await self._send(reply)
        if "id" in request:
            raise self._failed(f"wrote {MAX_MESSAGES} messages and no answer", b"")

    async def _send(self, message: bytes) -> None:
        script = _SEND.format(at=self._at)
        limit_s = ANSWER_LIMIT_S
        done = await self.box.run(script, timeout_s=limit_s, stdin=message + b"\n", user=self._user)
        if done.exit_code != 0:
            raise await self._ended()

    async def _line(self) -> bytes:
        pause_s = 0.02
        while not self._lines:
            # Between commands: cancelling one would end the box.
            if anyio.current_time() > self._until_s:
                raise self._failed(f"did not answer for {ANSWER_LIMIT_S:.0f} s", b"")
            if len(self._rest) > MAX_BYTES:
                raise self._failed(f"wrote a line of more than {MAX_BYTES >> 20} MiB", b"")
            script = _READ.format(at=self._at, begin=self._read + 1, most=PIECE_BYTES)
            done = await self.box.run(script, timeout_s=ANSWER_LIMIT_S, user=self._user)
            try:
                piece = b64decode(done.stdout)
            except Base64Error as error:
                raise self._failed(f"has an output that cannot be read: {error}", b"") from error
            self._read += len(piece)
            first, *others = piece.split(b"\n")
            self._rest += first
            if others:
                self._lines.extend(line for line in (self._rest, *others[:-1]) if line)
                self._rest = others[-1]
            if not piece:
                if done.exit_code != 0:
                    raise await self._ended()
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, 1.0)
        return self._lines.popleft()

    async def _ended(self) -> ResourceError:
        said = await self.box.run(f"tail -c 500 {self._at}/err", timeout_s=ANSWER_LIMIT_S, user=self._user)
        return self._failed("has ended", said.stdout)

    def _failed(self, what: str, words: bytes) -> ResourceError:
        said = cleaned(words.decode(errors="replace").strip()[-500:], 500)
        problem = f"task {self.box.task.name}: the MCP server '{self._part.name}' {what}"
        return ResourceError(f"{problem}: {said}" if said else problem)


class BoxServers:
    """The servers of a box, with their tools by the names that the model uses: ``SERVER__TOOL``."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[int, McpTool]] = {}
        self._parts: list[McpServerPart] = []
        self._open: dict[int, tuple[_Line, Connection]] = {}

    async def begin(
        self, box: TaskBox, parts: list[McpServerPart], user: str | int | None
    ) -> list[dict[str, Any]]:
        """Start them; the tools to offer.

        Raises:
            ResourceError: one does not start, or does not speak MCP.
        """
        self._parts, offered = parts, list[dict[str, Any]]()
        for place, part in enumerate(parts):
            connection = await self._connected(place, box, user)
            for name, tool in model_names(await connection.tools()).items():
                full = f"{part.name}__{name}"[:64]
                self._tools[full] = place, tool
                function = {"name": full, "description": tool.description, "parameters": tool.schema}
                offered.append({"type": "function", **function, "strict": False})
        return offered

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    async def call(
        self, name: str, arguments: str, box: TaskBox, user: str | int | None
    ) -> str | list[str | Image]:
        """What the model reads of a call: the tool's answer, or why the call failed."""
        place, tool = self._tools[name]
        try:
            given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except UNREADABLE as error:
            return f"The arguments are not a JSON object: {error}"
        try:
            connection = await self._connected(place, box, user)
            return shown(await connection.call(tool.name, given))
        except ResourceError as error:  # the agent may have ended it: that is the agent's to read
            return error.message

    async def _connected(self, place: int, box: TaskBox, user: str | int | None) -> Connection:
        part = self._parts[place]
        line, connection = self._open.get(place) or (None, None)
        if line is None or line.box is not box:
            line, connection = _Line(box, part, user), None
        if await line.start() or connection is None:
            connection = Connection(McpServer(command=(part.name,), call_s=math.inf), line)
            await connection.__aenter__()
            self._open[place] = line, connection
        return connection


async def skills(box: TaskBox, folder: str) -> str:
    """What the model is told of the skills in a folder of the box; empty without any."""
    at = folder if folder.startswith("/") else f"{box.directory}/{folder}"
    script = _SKILLS.format(at=shlex.quote(at), most=MAX_SKILLS)
    done = await box.run(script, timeout_s=ANSWER_LIMIT_S)
    lines: list[str] = []
    for line in done.stdout.decode(errors="replace").splitlines():
        path, _, encoded = line.rpartition(" ")
        try:
            fields = _front_matter(b64decode(encoded).decode(errors="replace"))
        except Base64Error:
            continue
        if fields.get("name") and fields.get("description"):
            name, about = cleaned(fields["name"], 100), cleaned(fields["description"], 1000)
            lines.append(f"- {name}: {about} ({path})")
    if not lines:
        return ""
    return "\n".join(["Skills, each with its instructions in a file; read it before you use it:", *lines])


def _front_matter(text: str) -> dict[str, str]:
    """The plain fields at the head of a skill's file."""
    head = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    pairs = [line.partition(":") for line in head.splitlines() if not line.startswith((" ", "#"))]
    return {key.strip(): value.strip().strip("\"'") for key, colon, value in pairs if colon}
