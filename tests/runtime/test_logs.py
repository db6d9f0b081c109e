"""Logs: for people on a terminal, JSON elsewhere; with the ids of what they are about, without secrets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime import connect
from gym_runtime.errors import UsageError
from gym_runtime.messages.outcomes import Completed
from gym_runtime.workers.adapter import ModelSettings
from stubs import stub_engine
from tables import table

pytestmark = pytest.mark.slow

SPEAKING = """
import logging
from gym_runtime import logs

logs.start("agent-1")
log = logs.logger()
log.debug("too quiet")
log.info("quiet")
log.warning("before any rollout")
logs.set_rollout("20260101-000000-abcdef.3.1", 2)
log.warning("within", tool="add", size_bytes=3)
logging.getLogger("somebody.else").warning("from %s", "a library")
def use(key):
    raise ValueError("what went wrong")

try:
    use("sk-very-" + "secret")
except ValueError:
    log.exception("a tool raised")
"""


def speak(level: str = "") -> list[dict[str, Any]]:
    environment = {**os.environ, "GYM_LOG_LEVEL": level} if level else dict(os.environ)
    process = subprocess.run(
        [sys.executable, "-c", SPEAKING], env=environment, capture_output=True, check=True, timeout=20
    )
    assert process.stdout == b""
    return [json.loads(line) for line in process.stderr.splitlines()]


def test_lines_are_asked_for_by_a_command_and_reach_its_workers() -> None:
    for more, environment in (("lines=True", {}), ("", {"GYM_LOG_FORMAT": "lines"})):
        code = SPEAKING.replace('logs.start("agent-1")', f'logs.start("agent-1", {more})')
        process = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            capture_output=True,
            check=True,
            timeout=20,
            text=True,
        )
        first = process.stderr.splitlines()[0]
        assert "before any rollout" in first
        assert "worker=agent-1" in first
        assert "\x1b" not in process.stderr
        assert "{" not in process.stderr


# -- form ---------------------------------------------------------------------------------------------


def test_off_a_terminal_every_line_is_json_that_of_libraries_too() -> None:
    before, within, library, error = speak()
    assert (before["event"], before["level"], before["worker"]) == (
        "before any rollout",
        "warning",
        "agent-1",
    )
    assert before["timestamp"].endswith("Z")
    assert not {"run", "rollout", "attempt", "trace_id"} & set(before)
    assert (within["tool"], within["size_bytes"]) == ("add", 3)
    for line in (within, library, error):
        assert line["run"] == "20260101-000000-abcdef"
        assert line["rollout"] == "20260101-000000-abcdef.3.1"
        assert line["attempt"] == 2
    assert (library["event"], library["logger"], library["level"]) == (
        "from a library",
        "somebody.else",
        "warning",
    )
    assert error["exception"].endswith("ValueError: what went wrong")


@table(("level", "events"), [("debug", 6), ("info", 5), ("warning", 4), ("error", 1), ("", 4), ("ERROR", 1)])
def test_the_level_is_a_variable(level: str, events: int) -> None:
    assert len(speak(level)) == events


def test_on_a_terminal_lines_are_for_people() -> None:
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
        subprocess.run(
            [sys.executable, "-c", SPEAKING], env=environment, stderr=theirs, check=True, timeout=20
        )
        text = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    line = next(line for line in text.splitlines() if "within" in line)
    assert not line.startswith("{")
    assert "tool=add" in line
    assert "rollout=20260101-000000-abcdef.3.1" in line
    assert "\x1b[" not in line
    assert "ValueError: what went wrong" in text
    assert "sk-very-secret" not in text


# -- what worker processes say ------------------------------------------------------------------------

BROKEN = """
from gym_runtime import Environment, Session, Task, Verdict, tool

class Broken(Session[Task]):
    @tool
    def work(self) -> str:
        raise ValueError("the tool's bug")

    async def verify(self, reply):
        return Verdict(1.0)

environment = Environment(resource=Broken, description="has a bug")
"""
ROW: dict[str, Any] = {
    "responses_create_params": {
        "input": "work",
        "tools": [{"type": "function", "name": "work", "parameters": {"type": "object", "properties": {}}}],
    }
}


@pytest.mark.anyio
@pytest.mark.slow
async def test_what_a_worker_logs_names_its_rollout_attempt_and_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "broken.py"
    await anyio.Path(module).write_text(BROKEN)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("GYM_LOG_LEVEL", "info")
    monkeypatch.chdir(tmp_path)
    async with connect(model="scripted/tool-then-message", environments=["broken"]) as gym:
        (record,) = [record async for record in gym.rollouts([ROW], environment="broken")]
    assert record.outcome == Completed()
    error = capfd.readouterr().err
    lines = [json.loads(line) for line in error.splitlines() if line.startswith('{"')]
    raised = next(line for line in lines if line["event"] == "a tool raised")
    assert (raised["run"], raised["rollout"], raised["attempt"]) == (record.run, record.rollout_id, 1)
    assert raised["worker"].startswith("resource-")
    assert len(raised["trace_id"]) == 32
    assert raised["exception"].endswith("ValueError: the tool's bug")
    # Standard error carries the console exporter's spans, too: the log's trace is that of the rollout.
    assert f'"trace_id": "0x{raised["trace_id"]}"' in error


@pytest.mark.anyio
@pytest.mark.slow
async def test_no_secret_is_ever_logged_or_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "sk-very-secret-0123456789"
    monkeypatch.setenv("MY_KEY", secret)
    monkeypatch.setenv("GYM_LOG_LEVEL", "debug")
    with stub_engine.running("--require-key", "sk-another", "--api", "responses") as engine:
        model = ModelSettings(
            provider="openai", name="stub", urls=(engine.url,), api="responses", api_key_variable="MY_KEY"
        )
        row = {"responses_create_params": {"input": "A or B?"}, "options": [{"A": "x"}, {"B": "y"}]}
        rows = [row | {"expected_answer": "A"}]
        try:
            async with connect(model=model, environments=["mcqa"]) as gym:
                shown = str([record async for record in gym.rollouts(rows, environment="mcqa")])
        except UsageError as error:
            shown = repr(error)
    assert "401" in shown or "key" in shown
    captured = capfd.readouterr()
    for text in (captured.out, captured.err, shown):
        assert secret not in text
        assert "nats://gym:" not in text


IN_A_TRAINER = """
import sys
import structlog
from gym_runtime.logs import logger

log = logger()
def use(key):
    raise ValueError("what went wrong")

def say():
    log.debug("too quiet")
    try:
        use("sk-very-" + "terces"[::-1])  # Python 3.13 shows the lines of a program that was given by -c
    except ValueError:
        log.warning("a warning", run="r1", exc_info=True)

print("step 1")
say()
if "own" in sys.argv:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    say()
"""


def test_a_program_that_sets_up_no_logs_gets_warnings_on_standard_error_alone() -> None:
    """A trainer's standard output is its own, and a traceback shows no variables."""
    said = subprocess.run([sys.executable, "-c", IN_A_TRAINER], capture_output=True, text=True, check=True)
    assert said.stdout == "step 1\n"
    assert "a warning" in said.stderr
    assert "run=r1" in said.stderr
    assert "what went wrong" in said.stderr
    assert "too quiet" not in said.stderr
    assert "secret" not in said.stderr


def test_a_program_that_sets_up_structlog_itself_keeps_its_own_form() -> None:
    command = [sys.executable, "-c", IN_A_TRAINER, "own"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    _, quiet, warned = said.stdout.splitlines()
    assert json.loads(quiet) == {"event": "too quiet"}
    assert json.loads(warned)["event"] == "a warning"
