"""``gym-runtime mcp``: a session's tools on standard input and output, by the SDK's client and by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COUNTER = """
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

class Counter(Session[Task]):
    async def open(self) -> None:
        self.count = 0

    @tool
    def add(self, amount: int) -> dict[str, int]:
        "Add to the count."
        self.count += amount
        return {"count": self.count}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == 5))

environment = Environment(resource=Counter, description="d")
"""
LIFT = """
from gym_runtime import Environment, Episode, Reply, Step, Task

def named(name: str) -> dict[str, object]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}

class Lift(Episode[Task]):
    async def reset(self) -> None:
        self.offered_tools = [named("up")]

    async def step(self, reply: Reply) -> Step:
        (call,) = reply.function_calls
        later = [named("down")] if call.name == "up" else []
        return Step(tool_outputs={call.call_id: call.name}, reward=1.0, tools=later)

environment = Environment(resource=Lift, description="d")
"""
COMMAND = [sys.executable, "-m", "gym_runtime.cli.main", "mcp"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "lift.py").write_text(LIFT)
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "go"}}\n')
    return tmp_path


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_sdks_client(mode: str, folder: Path) -> None:
    mcp: Any = pytest.importorskip("mcp", reason="needs pip install 'gym-runtime[dev]'")
    command, *arguments = [*COMMAND, str(folder / "counter.py"), "-i", str(folder / "rows.jsonl")]
    told = folder / "told"
    shell = ["-c", f'exec "$@" 2>{told}', "sh", command, *arguments]
    server = mcp.StdioServerParameters(command="sh", args=shell, cwd=str(folder))
    async with mcp.Client(server, mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("add", "Add to the count.")
        answers = [await client.call_tool("add", {"amount": amount}) for amount in (2, 3, "x")]
    assert [one.is_error for one in answers] == [False, False, True]
    assert json.loads(answers[1].content[0].text) == {"count": 5}
    assert "reward 1" in told.read_text()


def asked(folder: Path, name: str, *lines: bytes, row: int = 1) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, str(folder / name), "-i", str(folder / "rows.jsonl"), "--row", str(row)]
    return subprocess.run(command, input=b"".join(lines), capture_output=True, timeout=50, check=False)


def line(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"


def test_by_hand(folder: Path) -> None:
    done = asked(folder, "lift.py", b"\n", line("tools/call", name="up", arguments={}), b"{\n")
    answers = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: "error" in one)
    assert answers[0]["result"]["content"] == [{"type": "text", "text": "up"}]
    assert answers[1]["error"]["code"] == -32700
    assert (done.returncode, b"reward 1" in done.stderr) == (0, True)


def test_tools_of_a_later_step(folder: Path) -> None:
    """They were neither listed nor called."""
    up, down = (line("tools/call", name=name) for name in ("up", "down"))
    process = subprocess.Popen(
        [*COMMAND, str(folder / "lift.py"), "-i", str(folder / "rows.jsonl")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[dict[str, Any]] = []
    with process:
        for request, lines in [(line("tools/list"), 1), (up, 2), (line("tools/list"), 1), (down, 1)]:
            process.stdin.write(request)
            process.stdin.flush()
            said += [json.loads(process.stdout.readline()) for _ in range(lines)]
        process.stdin.close()
    assert said[1]["method"] == "notifications/tools/list_changed"
    assert [tool["name"] for tool in said[3]["result"]["tools"]] == ["up", "down"]
    assert said[4]["result"]["content"] == [{"type": "text", "text": "down"}]


def test_what_is_refused(folder: Path) -> None:
    for name, row, words in (("counter.py", 7, b"has no row 7"), ("mcqa", 1, b"has no tools")):
        if name == "mcqa":
            command = [*COMMAND, name]
            done = subprocess.run(command, input=b"", capture_output=True, timeout=50, check=False)
        else:
            done = asked(folder, name, row=row)
        assert done.returncode == 2, done
        assert words in done.stderr
    done = asked(folder, "counter.py", b" " * (4 * 2**20 + 10))
    assert done.returncode != 0
    assert b"longer than 4 MiB" in done.stderr
