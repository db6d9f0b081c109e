"""The command line as a whole: every mistake is one line, bugs keep their traceback."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gym_runtime import __version__, plurals
from gym_runtime.cli import formatting, main, options, start, whole_run
from gym_runtime.cli.app import COMMANDS as ENGINE_COMMANDS
from gym_runtime.cli.app import application
from gym_runtime.errors import BrokerError, TaskError, UsageError
from gym_runtime.plugins import plugins

SCRIPT = str(Path(sys.executable).with_name("gym-runtime"))
COMMANDS = [
    "run", "start", "publish", "collect", "cancel", "status", "ls", "new", "test", "reverify",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: gym-runtime {command}" in shown


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 0
    shown = capsys.readouterr().out
    assert all(f"│ {command}" in shown for command in COMMANDS)


def test_the_table_of_commands_says_what_their_docstrings_begin_with() -> None:
    # The list of the commands is shown from the tables, because it imports no command.
    app = application()
    tables = [ENGINE_COMMANDS, *(one.load().COMMANDS for one in plugins("commands").values())]
    for name, text in (
        (name, text) for table in tables for part in table.values() for name, text in part.items()
    ):
        assert app[name].help.partition("\n")[0] == text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"gym-runtime {__version__}\n"


MISTAKES = {
    "rnu": "unknown command 'rnu'; did you mean 'run'?",
    "run --repeat 3": "did you mean '--repeats'?",
    "run --repeats 0": "repeats is 0; it must be at least 1",
    "run --repeats x": "--repeats x: write it as N, or NAME=N for each of some environments",
    "run mcqa --top-p 2": "'top_p': expected float <= 1.0",
    "run --model-api soap": "invalid value 'soap' for --model-api; choose from 'auto', 'responses', 'chat'",
    "run": "gym-runtime run NAME",
    "run mqca": "did you mean 'mcqa'?",
    "run mcqa -i missing.jsonl": "missing.jsonl",
    "run mcqa -o .": "is a directory",
    "run mcqa --model nobody/x": "there is no model provider 'nobody'",
    "run mcqa --model scriptde/message": "did you mean 'scripted'?",
    "run mcqa --model openai": "--model openai/NAME",
    "run mcqa --model echo": "write it as PROVIDER/NAME, such as openai/NAME or scripted/echo",
    "run mcqa --model scripted/echo --model-url http://127.0.0.1:1": "leave --model-url out",
    "run xyzzy": "'gym-runtime ls environments' lists what there is",
    "gateway --port 99999": "invalid value '99999' for --port; it must be at most 65535",
    "run mcqa --model-url http://127.0.0.1:1/v1": "--model openai/NAME",
    "run mcqa --model openai/m --model-url http://me:pw@host/v1": "holds a user or a password",
    "start agents": "did you mean 'agent'?",
    "run mcqa,mqca": "there is no environment 'mqca'; did you mean 'mcqa'?",
    "test mcqa,mqca": "there is no environment 'mqca'; did you mean 'mcqa'?",
    "bench mcqa,mqca": "there is no environment 'mqca'; did you mean 'mcqa'?",
    "prepare mcqa,mqca": "there is no environment 'mqca'; did you mean 'mcqa'?",
    "prepare openenv:nowhere": "openenv:nowhere is not of the form openenv:http://HOST:PORT",
    "start resource:mcqa,mqca": "there is no environment 'mqca'; did you mean 'mcqa'?",
    "start mcqa": "'mcqa' is an environment; its workers are started by: resource:mcqa",
    "start toaster": "agent, resource or model",
    "start resource:mqca": "did you mean 'mcqa'?",
    "start agent:tool_lop": "did you mean 'tool_loop'?",
    "start agent --model scripted/message": "add 'model'",
    "start --config missing.toml": "missing.toml",
    "publish missing.jsonl": "GYM_NATS_URL",
    "collect": "requires an argument",
    "collect some-run": "--output requires an argument",
    "collect some-run -o rows.jsonl": "GYM_NATS_URL",
    "cancel some-run": "GYM_NATS_URL",
    "cancel some-run --rollout 1": "--task",
    "status": "GYM_NATS_URL",
    "ls cakes": "invalid value 'cakes'",
    "ls runs": "GYM_NATS_URL",
    "new Some-Name": "cannot name a module",
    "new class": "cannot name a module",
    "new mcqa": "already",
    "new thing --shape cube": "invalid value 'cube'",
    "test": "say which",
    "test mcqa --all": "not both",
    "test mqca": "did you mean 'mcqa'?",
    "compare rows.txt rows.txt": "rows.txt holds no rollouts; name a file of result rows, such as results/",
    "export rows.txt -o x.parquet": "there is nothing to write: no rollout has a verdict; 1 left out: ",
    "compare missing.jsonl rows.txt": "there is no file missing.jsonl",
    "reverify mcqa --rollouts missing.jsonl -o out.jsonl": "missing.jsonl",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    Path("rows.txt").write_text("no rows\n")
    monkeypatch.setattr(whole_run, "START_NOTE_S", 60.0)  # a busy machine would say that it is starting
    status = main.run(line.split())
    out, err = capsys.readouterr()
    assert err.startswith("gym-runtime: "), err
    assert err.count("\n") == 1, err
    assert MISTAKES[line] in err
    assert out == ""
    assert status == 2


def test_a_mistake_in_the_sampling_is_found_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["run", "mcqa", "--top-p", "2", "--state-dir", "state"]) == 2
    assert "'top_p': expected float <= 1.0" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows_failures.jsonl"])
def test_collected_rows_are_never_appended_to_those_of_another_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = '{"_ng_task_index":0,"_ng_rollout_index":0,"_gym":{"rollout_id":"other-run.0.0"}}\n'
    (tmp_path / name).write_text(row)
    line = ["collect", "some-run", "-o", str(tmp_path / "rows.jsonl"), "--nats", "nats://127.0.0.1:1"]
    assert main.run(line) == 2
    assert f"{name}:1 is of run 'other-run', not of 'some-run'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run no_such_environment --json", "there is no environment 'no_such_environment'"),
        ("run --no-such-flag --json", "unknown option"),
        ("status --json --nats nats://user:secret@127.0.0.1:1", "no broker at nats://127.0.0.1:1"),
    ],
)
def test_errors_are_documents_for_programs(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(line.split()) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error == {"message": err.removeprefix("gym-runtime: ").rstrip("\n"), "status": 2}
    assert error["message"].startswith(said)
    assert err.count("\n") == 1
    assert main.run(line.replace(" --json", "").split()) == 2
    assert capsys.readouterr().out == ""


def test_a_password_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", "mcqa", "--model-url", "http://me:hunter2@host/v1"]) == 2
    err = capsys.readouterr().err
    assert "--model-url needs the model's name" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GYM_LOG_LEVEL", "infoo", "is 'infoo'; it must be one of debug, info, warning, error"),
        ("GYM_LOG_FORMAT", "xml", "is 'xml'; it must be lines or json"),
    ],
)
def test_a_setting_of_logs_that_there_is_none_of(
    variable: str,
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    assert main.run(["run", "mcqa", "--model", "scripted/echo"]) == 2
    assert capsys.readouterr().err == f"gym-runtime: {variable} {said}\n"


@pytest.mark.slow
def test_a_setting_of_workers_that_is_no_number_is_refused_before_a_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_SAVED_KEPT_S", "1 day")
    assert main.run(["run", "mcqa", "--limit", "1", "--model", "scripted/echo"]) == 2
    said = "gym-runtime: GYM_SAVED_KEPT_S=1 day: it must be a number of seconds, 0 or more\n"
    assert capsys.readouterr().err.endswith(said)


def test_an_error_in_a_task_group_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = ExceptionGroup(
        "", [ExceptionGroup("", [ValueError("what followed"), UsageError("no such file")])]
    )
    assert main.report(error) == 2
    assert capsys.readouterr().err == "gym-runtime: no such file\n"


def test_a_wrong_row_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(TaskError("row 1: '_gym_fork' is no fork")) == 2
    assert capsys.readouterr().err == "gym-runtime: row 1: '_gym_fork' is no fork\n"


def test_an_error_that_is_nobody_s_mistake_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(BrokerError("the broker has no JetStream")) == 1
    assert capsys.readouterr().err == "gym-runtime: the broker has no JetStream\n"
    # As where a worker that `run` or `start` has started says so.
    assert main.report(BrokerError("the broker refuses the credentials", final=True)) == 2


def test_a_file_that_cannot_be_read_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(PermissionError(13, "Permission denied", "rows.jsonl")) == 1
    assert capsys.readouterr().err == "gym-runtime: rows.jsonl: Permission denied\n"


def raised(error: Exception) -> Exception:
    """The error, with a traceback."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_bug_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(raised(ZeroDivisionError("oops"))) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert "ZeroDivisionError: oops" in lines
    assert "please report it" in lines[-1]


def test_debug_shows_where_a_known_error_came_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GYM_LOG_LEVEL", "debug")
    assert main.report(raised(UsageError("no such file"))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "gym-runtime: no such file"


def test_ctrl_c_is_130_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(KeyboardInterrupt()) == 130
    assert main.report(BaseExceptionGroup("", [KeyboardInterrupt()])) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["ls", "models"], ["run", "--help"]])
def test_a_width_that_holds_nothing_is_no_width(arguments: list[str]) -> None:
    narrow = {**os.environ, "COLUMNS": "0"}
    ended = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, env=narrow)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert max(map(len, ended.stdout.splitlines())) > 20


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["ls", "models", "--json"], ["ls", "models"]])
def test_a_reader_that_has_gone_is_no_error(arguments: list[str]) -> None:
    process = subprocess.Popen([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_cannot_be_written_is_one_line(more: list[str]) -> None:
    command = [SCRIPT, "ls", "models", *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the output cannot be written: No space left on device" in done.stderr


@pytest.mark.slow
def test_a_terminal_without_utf_8_gets_what_it_can_show(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "test", "example_single_tool_call"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith(b"ok example_single_tool_call: keeps the contract")


@pytest.mark.slow
def test_the_script_passes_the_status_on(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, "rnu"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gym-runtime: unknown command 'rnu'; did you mean 'run'?\n"


@pytest.mark.parametrize("module", [formatting, options, plurals, start])
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
