"""``fork`` on files of runs: what it takes from them, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.files import OutputFiles
from runtime.cli.in_process import ran
from runtime.cli.started import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
MODEL = ("--model", "scripted/message")


def gym(folder: Path, *command: str) -> tuple[int, str]:
    """Its status, and what it said on standard error."""
    ended = ran(folder, *command)
    return ended.status, ended.err


def alone(folder: Path, *command: str, typed: str = "") -> tuple[int, str]:
    """The same in a process of its own, which has imported no module, and with something typed."""
    ended = subprocess.run(
        [SCRIPT, *command], input=typed, capture_output=True, text=True, cwd=folder, timeout=60
    )
    return ended.returncode, ended.stderr


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def asked(row: dict[str, Any]) -> list[str]:
    return [item["content"] for item in row["response"]["output"] if item["role"] == "user"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_fork_has_the_agent_of_its_rollouts_run(tmp_path: Path) -> None:
    agent = ("--agent", "reflection", "--agent-set", "max_reflections=1")
    assert gym(tmp_path, "run", "mcqa", "--limit", "1", *MODEL, *agent, "-o", "a.jsonl")[0] == 0
    (stored,) = rows(tmp_path / "a.jsonl")
    assert stored["_gym"]["turns"] == 3

    assert gym(tmp_path, "fork", "a.jsonl:0@1", *MODEL, "-o", "b.jsonl")[0] == 0
    (forked,) = rows(tmp_path / "b.jsonl")
    assert (forked["_gym"]["turns"], asked(forked)) == (3, asked(stored))
    settings = json.loads((tmp_path / "b_run.json").read_text())["settings"]
    assert (settings["agent"], settings["agent_options"]) == ("reflection", {"max_reflections": 1})

    # Another one may be asked for, and then has its own options.
    assert gym(tmp_path, "fork", "a.jsonl:0@1", *MODEL, "--agent", "tool_loop", "-o", "c.jsonl")[0] == 0
    assert rows(tmp_path / "c.jsonl")[0]["_gym"]["turns"] == 1
    # A manifest names no file.
    manifest = json.loads((tmp_path / "a_run.json").read_text())
    manifest["settings"]["agent"] = "planted"
    (tmp_path / "a_run.json").write_text(json.dumps(manifest))
    (tmp_path / "planted.py").write_text("raise SystemExit('planted')\n")
    status, said = gym(tmp_path, "fork", "a.jsonl:0@1", *MODEL, "-o", "d.jsonl")
    assert status == 2
    assert "the rollout's agent 'planted' is not installed here: name its file with --agent" in said


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a run: calls.jsonl and others."""
    folder = tmp_path_factory.mktemp("stored")
    command = ("run", "example_single_tool_call", "--limit", "1", "--model", "scripted/tool-then-message")
    assert gym(folder, *command, "-o", "calls.jsonl")[0] == 0
    return folder


def test_a_command_that_starts_nothing_writes_nothing(stored: Path, tmp_path: Path) -> None:
    calls, output = str(stored / "calls.jsonl"), tmp_path / "f.jsonl"

    def fork(turn: int, *flags: str) -> tuple[int, str]:
        return gym(tmp_path, "fork", f"{calls}:0@{turn}", *MODEL, "-o", "f.jsonl", *flags)

    assert fork(1, "--dry-run")[0] == 0
    assert fork(1, "--judge", "scripted/judge")[0] == 2
    assert contents(tmp_path) == {}
    assert fork(1)[0] == 0
    written = contents(tmp_path)
    (row,) = rows(tmp_path / "f_fork.jsonl")
    assert len(row["_gym_fork"]["turns"]) == 1

    for flags, complaint in (
        ((), "has rows already"),
        (("--resume",), "the input rows changed"),
        (("--overwrite", "--dry-run"), ""),
    ):
        status, said = fork(0, *flags)
        assert (status, complaint in said) == (2 if complaint else 0, True), said
        assert contents(tmp_path) == written
    with OutputFiles.beside(output).lock():
        status, said = fork(0, "--overwrite")
        assert (status, "is being written by" in said) == (2, True), said
    assert contents(tmp_path)["f_fork.jsonl"] == written["f_fork.jsonl"]
    # The same fork goes on.
    status, said = fork(1, "--resume")
    assert (status, "the run is complete" in said) == (0, True), said
    assert fork(0, "--overwrite")[0] == 0
    assert "turns" not in rows(tmp_path / "f_fork.jsonl")[0]["_gym_fork"]


def test_a_fork_never_writes_over_its_source(stored: Path) -> None:
    before = contents(stored)
    for output in ("calls.jsonl", "./calls.jsonl"):
        status, said = gym(stored, "fork", "calls.jsonl:0@1", *MODEL, "-o", output, "--overwrite")
        assert (status, contents(stored)) == (2, before)
        assert "calls.jsonl would be read and written; choose another -o" in said


def test_a_fork_keeps_what_is_where_its_row_goes(stored: Path, tmp_path: Path) -> None:
    kept = tmp_path / "f_fork.jsonl"
    kept.write_text("kept")
    command = ("fork", f"{stored / 'calls.jsonl'}:0@1", *MODEL, "-o", "f.jsonl")
    status, said = gym(tmp_path, *command)
    assert (status, kept.read_text()) == (2, "kept")
    assert "f_fork.jsonl, where the forked row goes, exists; choose another -o, or --overwrite it" in said
    assert gym(tmp_path, *command, "--overwrite")[0] == 0
    assert len(rows(kept)) == 1


def test_a_rollout_whose_calls_cannot_be_repeated_is_forked_at_turn_0_only(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(
        "from gym_runtime import Environment, Reply, Task, Verdict\n"
        "async def verify(task: Task, reply: Reply) -> Verdict:\n    return Verdict(1.0)\n"
        "environment = Environment(resource=verify, replayable=False, description='Once.')\n"
    )
    (tmp_path / "once.jsonl").write_text('{"responses_create_params": {"input": "hi"}}\n')
    assert gym(tmp_path, "run", "once.py", *MODEL, "-o", "a.jsonl")[0] == 0
    before = contents(tmp_path)
    fork = ("--environment", "once.py", *MODEL, "-o", "f.jsonl")
    status, said = gym(tmp_path, "fork", "a.jsonl:0@1", *fork)
    assert (status, "its rollouts can be forked at turn 0 only" in said) == (2, True)
    assert contents(tmp_path) == before
    assert gym(tmp_path, "fork", "a.jsonl:0@0", *fork)[0] == 0


def test_times_says_how_many_forks_there_are(stored: Path) -> None:
    status, said = gym(stored, "fork", "calls.jsonl:0@1", *MODEL, "--repeats", "3", "--dry-run")
    assert (status, said) == (2, "gym-runtime: fork makes --times rollouts: leave --repeats out\n")


def test_an_object_may_be_what_a_tool_answered(stored: Path, tmp_path: Path) -> None:
    (row,) = rows(stored / "calls.jsonl")
    (call_id,) = (item["call_id"] for item in row["response"]["output"] if item["type"] == "function_call")
    said = '{"city": "Lisbon", "weather_description": "freezing"}'
    for given, name in ((said, "whole"), (json.dumps({call_id: said}), "named")):
        flags = ("--tool-output", given, "-o", str(tmp_path / f"{name}.jsonl"))
        status, complaint = gym(stored, "fork", "calls.jsonl:0@1", *MODEL, *flags)
        assert status == 0, complaint
        (fork,) = rows(tmp_path / f"{name}_fork.jsonl")
        assert fork["_gym_fork"]["outputs"] == {call_id: said}


def test_more_forks_are_made_by_the_remedy_that_is_named(stored: Path, tmp_path: Path) -> None:
    def fork(*flags: str) -> tuple[int, str]:
        where = ("-o", str(tmp_path / "f.jsonl"))
        return gym(stored, "fork", "calls.jsonl:0@1", *MODEL, *where, *flags)

    assert fork("--times", "1")[0] == 0
    status, said = fork("--times", "3", "--resume")
    assert (status, "--resume --extend makes the run larger" in said) == (2, True)
    status, said = fork("--times", "3", "--resume", "--extend")
    assert (status, len(rows(tmp_path / "f.jsonl"))) == (0, 3), said


@pytest.mark.parametrize("times", ["1000001", "99999999999999999999"])
def test_an_absurd_number_of_forks_is_refused(stored: Path, tmp_path: Path, times: str) -> None:
    where = ("-o", str(tmp_path / "f.jsonl"))
    status, said = gym(stored, "fork", "calls.jsonl:0@1", *MODEL, *where, "--times", times, "--dry-run")
    assert (status, said) == (
        2,
        f"gym-runtime: invalid value '{times}' for --times; it must be at most 1000000\n",
    )


NOTES = """
from gym_runtime import Environment, Reply, Task, Verdict

async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(float("done" in reply.text))

environment = Environment(resource=verify, description="Notes.")
"""


def test_rollouts_of_a_module_are_forked_and_played_if_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    (tmp_path / "in.jsonl").write_text('{"responses_create_params": {"input": "Note it."}}\n')
    run = ("run", "notes.py", "--input", "in.jsonl", *MODEL, "-o", "n.jsonl")
    assert alone(tmp_path, *run)[0] == 0
    commands = (("fork", "n.jsonl:0@0", *MODEL), ("play", "n.jsonl:0@0"))
    for command in commands:
        # A row does not say which file is run.
        status, said = gym(tmp_path, *command)
        assert status == 2
        assert "environment 'notes' is not installed here: name its file" in said
        assert "--environment" in said
    for command in (
        (*commands[0], "-o", "f.jsonl", "--environment", "notes.py"),
        (*commands[1], "--environment", "notes"),
    ):
        status, said = alone(tmp_path, *command, typed="done\n")
        assert status == 0, said
