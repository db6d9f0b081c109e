"""``view --export``, ``show`` and ``compare`` as they are typed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from gym_runtime.cli.main import run
from view.test_vocabulary import write_tokenizer


def row(task: int, rollout: int, reward: float, **changes: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"What is {task} + {task}?"}]},
        "response": {
            "id": f"r{task}.{rollout}",
            "model": "m",
            "output": [
                {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
                {"type": "function_call_output", "call_id": "c", "output": '{"error": "b is missing"}'},
                {"type": "message", "role": "assistant", "content": "It is \x1b[2J4."},
            ],
        },
        "reward": reward,
        "reward_components": {"format": 1.0},
        "extracted_answer": "4",
        "expected_answer": str(2 * task),
        "options": ["\x1b[2J" + "x" * 500],
        "judge_evaluations": [{"verdict_label": "[[A!=B]]", "response": {"output": [{"content": "No."}]}}],
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "sums"},
        "_gym": {
            "rollout_id": f"20261122-aaa.{task}.{rollout}",
            "attempt": 2,
            "started_anew": ["the session is lost"],
            "outcome": {"type": "truncated", "reason": "max_turns"},
            "turns": 2,
        },
        **changes,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of four tasks with two rollouts each; the second solves one task more."""
    for name, solved in (("a", 2), ("b", 3)):
        rows = [row(task, rollout, float(task < solved)) for task in range(4) for rollout in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        manifest = {"run": "20261122-aaa" if name == "a" else "20261122-bbb", "digest": "d", "rows": 4}
        (tmp_path / f"{name}_run.json").write_text(json.dumps({**manifest, "rollouts": 8, "settings": {}}))
    fault = {"kind": "model", "stage": "turn", "message": "no answer"}
    failed = row(9, 0, 0.0, _ng_failure_class="model", _ng_failure=fault)
    (tmp_path / "a_failures.jsonl").write_text(json.dumps(failed) + "\n")
    return tmp_path


@pytest.mark.parametrize("how", ["20261122-aaa.2.1", "{}/a.jsonl:6", "{}/a.jsonl:2.1"])
def test_show_begins_with_the_verdict(how: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", how.format(results), "--in", str(results)]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["reward", "0", "truncated", "20261122-aaa.2.1"]
    for expected in (
        "of which format 1",
        "found extracted_answer: 4",
        "expected expected_answer: 4",
        "judge evaluations [[A!=B]]: No.",
        "limit max_turns",
        "tool error turn 1: b is missing",
        "attempt 2, started again: the session is lost",
    ):
        assert expected.split() in lines
    assert "What is 2 + 2?" in said
    assert "\x1b" not in said
    (options,) = (line for line in said.splitlines() if line.startswith("options "))
    assert options.endswith("xxx...")
    assert len(options) < 230
    assert "judge_evaluations" not in said


def test_a_damaged_manifest_hides_no_other_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b_run.json", "a_run.json"):
        (results / name).write_text('{"run": "2026')
        damaged = run(["show", "20261122-aaa.2.1", "--in", str(results)])
        assert (name, damaged) in {("b_run.json", 0), ("a_run.json", 2)}
    assert "name the file: FILE:TASK.ROLLOUT" in capsys.readouterr().err


def test_show_takes_the_row_that_counts(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a rollout that stands twice the first, and none of a line that no number can be read from."""
    twice = results / "twice:\n1.jsonl"
    rows = (row(0, 0, 0.5), row(0, 0, 0.25))
    twice.write_text("".join(json.dumps(one) + "\n" for one in rows) + "no json\n")
    assert run(["show", f"{twice}:0.0"]) == 0
    assert capsys.readouterr().out.startswith("reward 0.5 ")
    assert run(["show", f"{twice}:2.0"]) == 2
    assert "has no rollout 2.0" in capsys.readouterr().err


def test_show_a_failure(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", f"{results}/a.jsonl:9.0"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("reward -  failed")
    assert "model in turn: no answer" in said


def test_show_a_reply_that_an_audit_made(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has neither an id nor numbers. A field's name is shown whole, as NeMo Gym's metadata."""
    made = row(0, 0, 1.0, _gym={}, _ng_task_index=None, _ng_rollout_index=None)
    made["verifier_metadata"] = {"label": "safe"}
    (results / "c.audit.replies.jsonl").write_text(json.dumps(made) + "\n")
    assert run(["show", f"{results}/c.audit.replies.jsonl:1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "reward 1  completed"
    assert 'verifier_metadata {"label":"safe"}' in said


def test_show_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", f"{results}/b.jsonl:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == row(0, 0, 1.0)


def test_a_row_that_is_nested_too_deeply_is_refused(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "deep.jsonl").write_text('{"a":' * 50_000 + "1" + "}" * 50_000 + "\n")
    assert run(["show", f"{results}/deep.jsonl:1"]) == 2
    assert "is no JSON object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("x", "'x' names no rollout; give RUN.TASK.ROLLOUT, FILE:LINE or FILE:TASK.ROLLOUT"),
        ("{}/x.jsonl:1", "there is no file"),
        ("{}/a.jsonl:99", "has no line 99"),
        ("{}/a.jsonl:7.7", "has no rollout 7.7"),
        ("20261122-ccc.0.0", "no run below"),
        ("20261122-aaa.7.7", "has no rollout 7.7"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    named: str, message: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", named.format(results), "--in", str(results)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_runs_without_a_broker_are_those_in_results(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    monkeypatch.chdir(results)
    assert run(["ls", "runs"]) == 2
    error = capsys.readouterr().err
    assert "there is no folder results/ here; for the runs of a system, name it with --nats URL" in error
    folder = results / "results"
    folder.mkdir()
    for path in results.glob("*.json*"):
        path.rename(folder / path.name)
    monkeypatch.setenv("COLUMNS", "70")
    assert run(["ls", "runs"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:5] == ["run", "done", "failed", "rollouts", "reward"]
    assert ["results/b.jsonl", "8", "0", "8", "0.75"] in [line[:5] for line in lines]
    assert ["results/a.jsonl", "9", "1", "8", "0.5"] in [line[:5] for line in lines]
    assert max(map(len, out.splitlines())) <= 70
    assert "not shown, for want of width: started" in out
    assert err == "the runs in results/; those of a running system: --nats URL or GYM_NATS_URL\n"
    assert run(["ls", "runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["run"]: one["mean_reward"] for one in found} == {
        "results/a.jsonl": 0.5,
        "results/b.jsonl": 0.75,
    }


def test_compare(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(results / "a.jsonl"), str(results / "b.jsonl")]
    assert run(["compare", *files]) == 0
    said = capsys.readouterr().out
    assert "difference +0.25 over 4 tasks, 95 % interval +0 to +0.75" in said
    assert "1 better, 3 equal, 0 worse" in said
    assert "8 truncated, 1 failed" in said
    shown = " ".join(said.split())
    assert "mean reward 0.5 ± 0.29 0.75 ± 0.25" in shown
    assert "pass@2 50.0% ± 28.9%, 4 of 5 tasks 75.0% ± 25.0%, 4 of 4 tasks" in shown
    assert run(["compare", *files, "--failures-as-zero"]) == 0
    assert "mean reward 0.4444 ± 0.26" in " ".join(capsys.readouterr().out.split())
    assert run(["compare", *files, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["comparison"]["wins"] == 1
    assert document["a"]["figures"]["outcomes"] == {"truncated": 8, "failed": 1}
    assert len(document["comparison"]["pairs"]) == 4
    assert run(["compare", files[0], str(results / "x.jsonl")]) == 2
    (results / "other").mkdir()
    (results / "other" / "c.jsonl").write_text(json.dumps(row(77, 0, 1.0, responses_create_params={})) + "\n")
    (results / "other" / "c_run.json").write_text('{"run": "c", "digest": "e"}')
    capsys.readouterr()
    for named, message in (
        ([str(results / "other"), files[0]], "a.jsonl have no task in common with a verdict in both\n"),
        ([str(results), files[0]], f"{results} holds 3 runs; name one of them: {files[0]}, {files[1]}, "),
    ):
        assert run(["compare", *named]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert run(["export", str(results / "other"), "-o", str(results / "c.jsonl"), "--format", "atif"]) == 0


def test_what_stands_twice_counts_once_and_a_torn_line_is_told(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once, b = results / "a.jsonl", str(results / "b.jsonl")
    twice = results / "twice.jsonl"
    failures = (results / "a_failures.jsonl").read_bytes()
    (results / "twice_failures.jsonl").write_bytes(failures * 2)  # two attempts
    torn = once.read_bytes()[:100]
    nan = once.read_bytes().splitlines(keepends=True)[0].replace(b'"reward": 1.0', b'"reward": NaN')
    twice.write_bytes(once.read_bytes() * 2 + nan + torn)
    notes = (
        f"{twice}: 8 rows are of a rollout that has one; the first counts\n"
        f"{twice}: the last line is torn, or still being written; it does not count\n"
    )
    assert run(["compare", str(once), b, "--json"]) == 0
    expected, said = capsys.readouterr()
    assert not said
    assert run(["compare", str(twice), b, "--json"]) == 0
    found, said = capsys.readouterr()
    assert said == notes
    figures, same = (json.loads(text)["a"]["figures"] for text in (found, expected))
    assert figures["outcomes"].pop("unreadable") == 1
    assert figures.pop("rollouts") == same.pop("rollouts") + 1
    assert figures == same
    for form in ("rollouts", "atif"):
        assert run(["export", str(twice), "-o", str(results / form), "--format", form]) == 0
        out, said = capsys.readouterr()
        assert out.startswith("8 rows: ")
        assert said == notes


def test_one_task_does_not_tell_which_run_is_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for path, reward in zip(files, (0.0, 1.0), strict=True):
        Path(path).write_text("".join(json.dumps(row(0, k, reward)) + "\n" for k in range(8)))
    assert run(["compare", *files]) == 0
    said = capsys.readouterr().out
    assert "difference +1 over 1 task: one task cannot tell which run is better\n" in said
    assert "1 better, 0 equal, 0 worse  (tasks joined by task index)\n" in said
    assert run(["compare", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert (found["difference"], found["low"], found["high"]) == (1.0, None, None)


def test_rewards_whose_difference_is_no_number_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for path, reward in zip(files, (1.7e308, -1.7e308), strict=True):
        rows = [row(task, 0, reward) for task in range(2)]
        Path(path).write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert run(["compare", *files]) == 0
    said = capsys.readouterr().out
    assert "1.7e+308 ± 0" in said
    assert "a difference of rewards is larger than a number can be" in said
    assert run(["compare", *files, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["difference"] is None


@pytest.mark.slow
def test_view_exports(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = results / "shared" / "page.html"
    assert run(["view", str(results), "--export", str(target)]) == 0
    assert capsys.readouterr().out.startswith("1 file, ")
    assert target.is_file()
    assert run(["view", str(results), "--export", str(target)]) == 2
    assert f"{target} is there already; choose another name, or --overwrite" in capsys.readouterr().err
    assert run(["view", str(results), "--export", str(target), "--overwrite"]) == 0
    capsys.readouterr()
    assert run(["view", str(results / "none"), "--no-open"]) == 2
    assert "there is no file or folder" in capsys.readouterr().err


@pytest.mark.slow
def test_view_exports_the_texts_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = {"type": "message", "role": "assistant", "content": "Hi", "generation_token_ids": [7, 8]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row(0, 0, 1.0, response={"output": [message]})) + "\n")
    command = ["view", str(tmp_path / "a.jsonl"), "--export", str(tmp_path / "shared"), "--tokenizer"]
    assert run([*command, str(tmp_path)]) == 2
    assert "name a model's tokenizer.json, or its folder" in capsys.readouterr().err
    write_tokenizer(tmp_path / "tokenizer.json", {"H": 7, "i": 8})
    assert run([*command, str(tmp_path)]) == 0
    (card,) = json.loads(
        gzip.decompress((tmp_path / "shared/data/0/rollouts-0.cards.gz").read_bytes())
    ).values()
    assert card["marks"] == [{"turn": 1, "tokens": ["H", "i"]}]


@pytest.mark.slow
def test_view_serves_until_it_is_interrupted(results: Path) -> None:
    command = [sys.executable, "-m", "gym_runtime.cli.main", "view", str(results)]
    nats = ["--nats", "nats://127.0.0.1:1"]
    process = subprocess.Popen([*command, *nats], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    children = psutil.Process(process.pid).children()
    with urllib.request.urlopen(url) as answer:
        assert b'<div id="app">' in answer.read()
    # A terminal's Ctrl-C goes to all processes of its group.
    assert os.getpgid(children[0].pid) != os.getpgid(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130
    assert b"the page shows files only: no broker at nats://127.0.0.1:1" in said
    assert b"Traceback" not in said
    assert len(children) == 1
    psutil.wait_procs(children, timeout=20)
    assert not children[0].is_running()


@pytest.mark.slow
def test_a_file_that_may_not_be_read_is_named(results: Path, tmp_path: Path) -> None:
    (results / "a.jsonl").chmod(0)
    # Root may read everything, unless it gives that up.
    as_others = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if as_others and subprocess.run([*as_others, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this root cannot give up its rights")
    command = [*as_others, sys.executable, "-m", "gym_runtime.cli.main"]
    a, b, out = (str(results / name) for name in ("a.jsonl", "b.jsonl", "out"))
    for arguments in (
        ["compare", b, a],
        ["export", a, "-o", out],
        ["import-atif", a, "-o", f"{out}.jsonl"],
        ["merge", b, a, "-o", f"{out}.jsonl"],
        ["view", a, "--export", out],
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert done.stderr == f"gym-runtime: cannot read {a}: Permission denied\n", arguments
    assert not list(tmp_path.glob("out*"))
