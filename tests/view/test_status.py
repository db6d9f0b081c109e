"""``ls``, ``status`` and ``cancel``: readable for people, one schema for programs."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
from pathlib import Path

import anyio
import pytest
from gym_runtime import clock, connect
from gym_runtime.cli import main
from gym_runtime.messages.stored_records import RunInfo
from gym_view.commands.ls import describe_environment
from runtime.cli.started import SCRIPT, Started

UNSERVED = (
    "no worker serves agent 'dialogue' now; what asks for it waits until one does: "
    "gym-runtime start agent:dialogue\n"
)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = main.run(list(arguments))
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


async def open_a_run(url: str) -> None:
    """A run into which its client puts one rollout after the other, so that it has no total."""
    async with connect(nats=url) as gym:
        await gym.driver.open_run(RunInfo(run="open", total=0, environments=["mcqa"], created_s=clock.now()))


def test_environments_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(output(capsys, "ls", "--json"))
    mcqa = next(entry for entry in entries if entry["name"] == "mcqa")
    assert mcqa.pop("source").endswith("mcqa.py")
    assert mcqa.pop("description").startswith("Multiple-choice questions")
    assert mcqa == {
        "name": "mcqa", "domain": "knowledge", "shape": "verify", "agent": mcqa["agent"], "runnable": True,
        "needs": "", "extra": "", "data_license": mcqa["data_license"], "audit": mcqa["audit"],
        "benchmark": False, "modality": "text", "roles": [],
    }  # fmt: skip


def test_a_domain_is_found_in_any_case_and_an_unknown_one_is_answered_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries = json.loads(output(capsys, "ls", "--domain", "Math", "--json"))
    assert {entry["domain"] for entry in entries} == {"math"}
    for option, value, said in (
        ("--domain", "maths", "there is no domain 'maths'; did you mean 'math'?"),
        ("--domain", "zzz", "there is no domain 'zzz'; there are: agent, "),
        ("--needs", "juge", "no environment needs 'juge'; did you mean 'judge'?"),
    ):
        assert main.run(["ls", option, value]) == 2
        out, problem = capsys.readouterr()
        assert not out
        assert problem.startswith(f"gym-runtime: {said}")
        assert problem.count("\n") == 1


def test_recipes_say_what_of_each_is_here_and_what_its_parts_need(capsys: pytest.CaptureFixture[str]) -> None:
    entries = {entry["name"]: entry for entry in json.loads(output(capsys, "ls", "recipes", "--json"))}
    nano = entries["nano-3"]
    assert nano["source"] == "grpo_nanov3.yaml"
    assert [part["environment"] for part in nano["parts"]] == [
        "math_with_judge",
        "code_gen",
        "workplace_assistant",
        "mcqa",
        "instruction_following",
        "structured_outputs",
    ]
    [swe] = entries["ultra-3-swe-teacher"]["parts"]
    assert swe == {
        "name": "swebench_openhands_training",
        "agents": ["swe_agents_train"],
        "environment": "",
        "runnable": False,
        "needs": "no environment here",
    }
    lines = output(capsys, "ls", "recipes").splitlines()
    assert lines[0].split() == ["recipe", "parts", "here", "runnable", "not", "here"]
    assert next(line for line in lines if line.startswith("nano-3")).split()[1:3] == ["6", "6"]
    assert any(line.split()[:4] == ["lc_judge", "lc_judge", "role", "judge"] for line in lines)


@pytest.mark.parametrize("kind", ["agents", "models"])
def test_agents_and_models_as_documents(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(output(capsys, "ls", kind, "--json"))
    assert len(entries) >= 2
    fields = {"name", "runnable", "needs", "description", "key_variable", "key_set"}
    assert all(set(entry) == fields for entry in entries)


def test_one_line_an_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = output(capsys, "ls").splitlines()
    assert lines[0].split() == ["name", "domain", "shape", "licence", "audit", "needs", "description"]
    assert sum(line.startswith("mcqa ") for line in lines) == 1


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_window_is_kept(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = output(capsys, "ls").splitlines()
    assert all(len(line) <= width for line in lines)
    assert ("domain" in lines[0]) == (width == 120)


def test_what_cannot_be_imported_is_listed_with_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("listed_without_import.py").write_text("import no_such_package.part\n")
    entry = describe_environment("listed_without_import")
    assert not entry.runnable
    assert entry.needs == "pip install no_such_package"
    Path("listed_though_broken.py").write_text("1 / 0\n")
    entry = describe_environment("listed_though_broken")
    assert entry.needs.startswith("environment 'listed_though_broken' cannot be imported: ZeroDivisionError")


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_running_system_can_be_looked_at_and_its_runs_cancelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Path(__file__).parents[2] / "resources" / "gym_resources" / "mcqa.jsonl"
    with Started(
        tmp_path, "resource:mcqa", "agent:tool_loop", "model", "--model", "scripted/message"
    ) as started:
        monkeypatch.setenv("GYM_NATS_URL", started.url)
        monkeypatch.setenv("COLUMNS", "160")
        assert json.loads(output(capsys, "ls", "runs", "--json")) == []
        assert "no runs" in output(capsys, "ls", "runs")
        run = output(capsys, "publish", str(rows), "--environment", "mcqa", "--repeats", "2").strip()
        while json.loads(output(capsys, "ls", "runs", "--json"))[0]["done"] < 10:
            pass
        one = json.loads(output(capsys, "status", run, "--json"))
        assert (one["run"], one["state"], one["done"], one["failed"]) == (run, "active", 10, 0)
        assert one["mean_reward"] is not None, "also of a run that nobody has collected"
        assert output(capsys, "status", run).split("\n")[1].startswith(run)
        for known in (one, *json.loads(output(capsys, "ls", "runs", "--json"))):
            assert known["mean_reward"] == one["mean_reward"]
            assert (known["rate_per_s"], known["left_s"]) == (None, None)
        assert main.run(["status", "nosuch"]) == 2
        assert "there is no run 'nosuch'" in capsys.readouterr().err
        assert output(capsys, "cancel", run) == (
            f"run {run} has nothing to stop: 10 rollouts have finished; "
            f"'gym-runtime collect {run} -o FILE' fetches them\n"
        )
        collect = ("collect", run, "-o", str(tmp_path / "rows.jsonl"), "--json")
        for made in (10, 0):
            assert main.run(list(collect)) == 0
            told = json.loads(capsys.readouterr().out)
            assert (told["summary"]["rollouts"], told["rollouts"], told["not_made"]) == (10, made, 0)
        assert [known["run"] for known in json.loads(output(capsys, "ls", "runs", "--json"))] == [run]
        status = json.loads(output(capsys, "status", "--json"))
        assert {"worker", "pools", "host", "pid", "capacity", "in_use", "load", "draining", "detail"} <= set(
            status["workers"][0]
        )
        assert all(set(depth) == {"waiting", "in_flight"} for depth in status["queues"].values())
        assert "scripted/message" in output(capsys, "status")
        assert output(capsys, "cancel", run) == f"run {run} is finished already\n"
        assert main.run(["collect", run, "-o", str(tmp_path / "again.jsonl")]) == 2
        assert f"run '{run}' is finished, and its records are not stored any more" in capsys.readouterr().err
        [finished] = json.loads(output(capsys, "ls", "runs", "--json"))
        assert {name: finished[name] for name in ("state", "total", "done", "failed", "model")} == {
            "state": "finished", "total": 10, "done": 10, "failed": 0, "model": "scripted/message",
        }  # fmt: skip
        header = output(capsys, "ls", "runs").split("\n", 1)[0].split()
        columns = "run state done failed rollouts rate left reward model environments started"
        assert header == columns.split()

        assert main.run(["publish", str(rows), "--environment", "mcqa", "--agent", "dialogue"]) == 0
        waiting, said = capsys.readouterr()
        waiting = waiting.strip()
        assert said == UNSERVED
        assert output(capsys, "cancel", waiting, "--task", "1", "--rollout", "0") == (
            f"cancelled {waiting}.1.0\n"
        )
        assert output(capsys, "pause", waiting) == f"run {waiting} is paused\n"
        chosen = json.loads(output(capsys, "set", waiting, "concurrency=2", "timeout_s=60", "--json"))
        assert (chosen["paused"], chosen["concurrency"], chosen["timeout_s"]) == (True, 2, 60)
        assert main.run(["set", waiting, "concurrency=two"]) == 2
        assert "concurrency" in capsys.readouterr().err
        seen = json.loads(output(capsys, "status", waiting, "--json"))
        assert (seen["state"], seen["paused"], seen["control"]["concurrency"]) == ("active", True, 2)
        for looked in (["status"], ["status", waiting], ["ls", "runs"], ["top", "--once"]):
            text = output(capsys, *looked)
            shown = next(line for line in text.split("\n") if line.startswith(waiting))
            assert shown.split()[1] == "paused", looked
            assert looked != ["status"] or UNSERVED in text
        goes_on = f"run {waiting} goes on, with concurrency=2, timeout_s=60\n"
        assert output(capsys, "resume", waiting) == goes_on
        assert json.loads(output(capsys, "retry-failed", waiting, "--json")) == {"run": waiting, "retried": 0}
        assert main.run(["pause", run]) == 2
        assert f"run '{run}' is finished, and nothing can be changed" in capsys.readouterr().err

        me = f"{getpass.getuser()}@{socket.gethostname()}"
        assert f"{waiting}.1.0 cancelled by {me} at 20" in output(capsys, "status", waiting)
        assert main.run(["cancel", waiting, "--task", "77"]) == 2
        assert f"run {waiting} has no task 77: its tasks are 0 to 4\n" in capsys.readouterr().err
        assert f"{waiting}.77" not in output(capsys, "status", waiting)
        collect = [SCRIPT, "collect", waiting, "-o", str(tmp_path / "none.jsonl")]
        with subprocess.Popen(
            collect, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == UNSERVED
            process.terminate()
        assert output(capsys, "cancel", waiting) == f"cancelled {waiting}\n"
        assert output(capsys, "cancel", waiting) == f"run {waiting} is cancelled already\n"
        main.run(["collect", waiting, "-o", str(tmp_path / "some.jsonl"), "--json"])
        stopped = json.loads(capsys.readouterr().out)
        assert "is cancelled, and its records are not stored any more" in stopped["error"]["message"]
        cancelled = json.loads(output(capsys, "ls", "runs", "--json"))[1]
        assert (cancelled["state"], cancelled["done"]) == ("cancelled", 0)
        assert cancelled["cancelled_by"] == me
        assert cancelled["created_s"] < cancelled["cancelled_s"] < clock.now()
        shown = output(capsys, "status", waiting)
        assert f"\ncancelled by {me} at 20" in shown
        assert run not in shown
        told = json.loads(output(capsys, "status", waiting, "--json"))
        assert (told["state"], told["cancelled_by"], told["cancelled_parts"]) == ("cancelled", me, {})
        assert "cancelled" not in output(capsys, "status", run)
        assert main.run(["status", "no-such-run"]) == 2
        assert capsys.readouterr().err.startswith("gym-runtime: there is no run 'no-such-run'")
        anyio.run(open_a_run, started.url)
        assert output(capsys, "cancel", "open") == "cancelled open\n"
        assert main.run(["cancel", "no-such-run"]) == 2
        assert capsys.readouterr().err.startswith("gym-runtime: there is no run 'no-such-run'")
        # Last, because each look takes a second where no agent worker is left that keeps the list.
        output(capsys, "publish", str(rows), "--environment", "mcqa")
        while json.loads(output(capsys, "ls", "runs", "--json"))[-1]["done"] < 5:
            pass
        assert main.run(["drain", "agent"]) == 0
        capsys.readouterr()
        while {one["kind"] for one in json.loads(output(capsys, "status", "--json"))["workers"]} != {
            "resource",
            "model",
        }:
            pass
        assert "no worker serves" not in output(capsys, "status").lower(), "nothing waits for it"
        # Without agent workers, nothing is known of the agents that one may bring.
        assert main.run(["publish", str(rows), "--environment", "mcqa", "--agent", "nosuch"]) == 0
        assert capsys.readouterr().err == UNSERVED.replace("dialogue", "nosuch")


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_run_that_another_user_cancelled_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.jsonl"
    with Started(tmp_path, "model", "--model", "scripted/message") as started:
        monkeypatch.setenv("GYM_NATS_URL", started.url)
        config = tmp_path / "system.toml"
        model = 'provider = "scripted"\nname = "message"\noptions = {latency_s = 600}\n'
        config.write_text(f'[[pools]]\nkind = "model"\n[pools.model]\n{model}')
        command = [SCRIPT, "run", "mcqa", "-o", str(out), "--config", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while not (known := json.loads(output(capsys, "ls", "runs", "--json"))):
                assert process.poll() is None
            monkeypatch.setenv("LOGNAME", "ann")
            output(capsys, "cancel", known[0]["run"])
            _, said = process.communicate(timeout=40)
        ann = f"ann@{socket.gethostname()}"
        assert f"run {known[0]['run']} was cancelled by {ann} at 20" in said
        manifest = json.loads(out.with_name("rows_run.json").read_text())
        assert manifest["cancelled_by"] == ann
        assert manifest["started_s"] < manifest["cancelled_s"] < clock.now()
        [cancelled] = json.loads(output(capsys, "ls", "runs", "--json"))
        assert (cancelled["state"], cancelled["cancelled_by"]) == ("cancelled", ann)
