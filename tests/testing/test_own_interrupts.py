"""An author's code that raises KeyboardInterrupt is found by each command; Ctrl-C ends the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from gym_runtime.cli import main

TOOL = """'Count.'
import signal
import time

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

class Count(Session[Task]):
    @tool
    def add(self, amount: int) -> int:
        "Adds."
        BODY

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(reply.text == "Done."))

environment = Environment(resource=Count, description="Count.")
"""
AGENT = """'An agent.'
class Agent:
    'Is interrupted.'
    async def run(self, rollout):
        raise KeyboardInterrupt
"""
ROW = {"responses_create_params": {"input": "Count."}, "gold": [{"call": "add", "amount": 1}, "Done."]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, body: str) -> str:
    Path(f"{name}.py").write_text(TOOL.replace("BODY", body))
    Path(f"{name}.jsonl").write_text((json.dumps(ROW) + "\n") * 5)
    return name


@pytest.mark.parametrize(
    ("command", "status"), [(["test"], 1), (["audit", "--seconds", "3", "--rows", "2"], 0), (["bench"], 1)]
)
def test_a_tool_that_raises_it_is_named_with_its_place(
    command: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name = written(f"interrupted_{command[0]}", "raise KeyboardInterrupt")
    assert main.run([command[0], name, *command[1:]]) == status
    assert f"KeyboardInterrupt ({Path.cwd() / name}.py:11)" in capsys.readouterr().out


def test_an_agent_that_raises_it_is_named_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("interrupted_agent.py").write_text(AGENT)
    assert main.run(["test", "interrupted_agent.py"]) == 1
    place = f"{Path.cwd()}/interrupted_agent.py:5"
    assert f"a message ends it: the rollout failed: KeyboardInterrupt ({place})" in capsys.readouterr().out


def test_ctrl_c_twice_ends_a_check_whose_tool_blocks() -> None:
    loop = "while True:\n            time.sleep(0.01)"
    name = written("blocking", f"print('blocks', flush=True)\n        {loop}")
    command = [sys.executable, "-m", "gym_runtime.cli.main", "test", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "blocks\n"
        # Two that arrive at once are one.
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.2)
        # One that meets the interpreter's own end kills it, which a shell shows as 130, too.
        assert child.returncode in (130, -signal.SIGINT)
