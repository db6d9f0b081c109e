"""What a running system serves: which model answers, and an error for what no worker serves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime import connect, connect_sync
from gym_runtime.cli import main
from gym_runtime.client import unserved
from gym_runtime.environment import catalogue
from gym_runtime.rpc.members import Heartbeat
from gym_runtime.training import open_dataset
from runtime.cli.started import SCRIPT, Started

WORKERS = [
    Heartbeat(worker="a", kind="agent", pools=["tool_loop"]),
    Heartbeat(worker="r", kind="resource", pools=["mcqa"]),
    Heartbeat(worker="m", kind="model", pools=["policy"], detail={"model": "openai/Qwen/Qwen3-4B"}),
]
NOSUCH = "no worker serves {0} 'nosuch' now; what asks for it waits {2}: gym-runtime start {1}:nosuch"
FAILS = "30 s at each attempt, then fails"
NO_MODEL = NOSUCH.format("model", "model", FAILS) + "; there are: policy"


def test_what_no_worker_serves() -> None:
    names = ["nosuch"]
    assert unserved(WORKERS, agents=["tool_loop"], environments=["mcqa"], models=["policy"]) == []
    assert unserved(WORKERS, agents=names, environments=names, models=names) == [
        NOSUCH.format("agent", "agent", "until one does"),
        NOSUCH.format("environment", "resource", FAILS),
        NO_MODEL,
    ]
    (line,) = unserved(WORKERS, models=["polcy"])
    assert line.endswith("gym-runtime start model:polcy; did you mean 'policy'?")
    assert unserved([], models=["policy"])[0].endswith("gym-runtime start model")


def test_different_code_of_an_environment_is_named() -> None:
    workers = [
        Heartbeat(worker=name, kind="resource", pools=["a", "b"], host="node1", detail={"code": code})
        for name, code in (("r1", "a=1 b=1"), ("r2", "a=1 b=2"), ("r3", "a=1 b=2"))
    ]
    assert unserved(workers, environments=["a"]) == []
    (line,) = unserved(workers, environments=["a", "b"])
    assert line.startswith("environment 'b' has different code on r1 (node1) and r2 (node1); ")


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system that has a model only."""
    with Started(tmp_path_factory.mktemp("echo"), "model", "--model", "scripted/echo") as system:
        yield system.url


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_without_a_model_that_of_the_system_answers(
    echo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_NATS_URL", echo)
    assert main.run(["run", "mcqa", "-o", "theirs.jsonl"]) == 0
    assert "scripted/echo answers: this system serves it as 'policy'" in capsys.readouterr().err
    assert main.run(["run", "mcqa", "-o", "own.jsonl", "--model", "scripted/message"]) == 0
    assert "answers" not in capsys.readouterr().err
    # Another model must not answer under the name of the one that was asked for.
    assert main.run(["run", "mcqa", "-o", "misspelt.jsonl", "--model-pool", "polcy"]) == 2
    assert "no worker serves model 'polcy' now" in (said := capsys.readouterr().err)
    assert "did you mean 'policy'?" in said
    assert not Path("misspelt.jsonl").exists()
    rows = [json.loads(line) for line in Path("theirs.jsonl").read_text().splitlines()]
    assert {row["response"]["model"] for row in rows} == {"echo"}
    assert json.loads(Path("theirs_run.json").read_text())["settings"]["model"] == "scripted/echo"
    rows = [json.loads(line) for line in Path("own.jsonl").read_text().splitlines()]
    assert {row["response"]["model"] for row in rows} == {"message"}


ALWAYS = """
from gym_runtime import Environment, Reply, Task, Verdict


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="Any answer will do.")
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_with_other_code_of_an_environment_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, code in (("theirs", ALWAYS), ("ours", ALWAYS.replace("1.0", "0.5"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "always.py").write_text(code)
        (tmp_path / folder / "always.jsonl").write_text('{"responses_create_params": {"input": "Hello."}}\n')
    monkeypatch.chdir(tmp_path / "ours")
    model = ["--model", "scripted/message"]
    with Started(tmp_path / "theirs", "agent:tool_loop", "resource:always", "model", *model) as system:
        monkeypatch.setenv("GYM_NATS_URL", system.url)
        differs = "environment 'always' has different code on resource-"
        assert main.run(["publish", "always.jsonl", "--environment", "always"]) == 0
        assert differs not in capsys.readouterr().err
        # It starts a worker of its own beside theirs.
        assert main.run(["run", "always.py", "-o", "rows.jsonl"]) == 0
        assert differs in capsys.readouterr().err
        with connect_sync(system.url, environments="always.py") as gym:
            row = {"responses_create_params": {"input": "Hello."}}
            assert len(list(gym.rollouts([row], environment="always"))) == 1
        assert differs in capsys.readouterr().err
        (tmp_path / "ours" / "always.py").write_text(ALWAYS)
        assert main.run(["run", "always.py", "-o", "same.jsonl"]) == 0
        assert differs not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_run_of_which_every_rollout_failed_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Path(__file__).parents[3] / "resources" / "gym_resources" / "mcqa.jsonl"
    monkeypatch.setenv("GYM_HARNESS", json.dumps(["false"]))
    pools = ("resource:mcqa", "agent:black_box", "model", "--model", "scripted/echo")
    with Started(tmp_path, *pools) as system:
        monkeypatch.setenv("GYM_NATS_URL", system.url)
        arguments = ["--environment", "mcqa", "--agent", "black_box", "--max-attempts", "1"]
        assert main.run(["publish", str(rows), *arguments]) == 0
        run, said = capsys.readouterr()
        assert said == ""
        assert main.run(["collect", run.strip(), "-o", str(tmp_path / "rows.jsonl")]) == 1
    assert len((tmp_path / "rows_failures.jsonl").read_text().splitlines()) == 5


@pytest.mark.slow
def test_a_gateway_to_a_model_that_no_worker_serves(echo: str) -> None:
    command = [SCRIPT, "gateway", "--nats", echo, "--model-pool", "nosuch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it serves
        process.terminate()
        _, said = process.communicate(timeout=40)
    assert json.loads(said)["event"] == NO_MODEL


@pytest.mark.slow
@pytest.mark.anyio
async def test_one_environment_may_be_said_without_a_list() -> None:
    row = {
        "responses_create_params": {"input": "A or B?"},
        "options": [{"A": "yes"}, {"B": "no"}],
        "expected_answer": "A",
    }
    async with connect(model="scripted/echo", environments="mcqa", agents="tool_loop") as gym:
        (record,) = [record async for record in gym.rollouts([row], environment="mcqa")]
    assert record.reward is not None


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_agent_by_the_path_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line and in Python; rows and others know it by its file's stem."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "asks_once.py").write_text(
        "class Agent:\n    async def run(self, rollout):\n        await rollout.respond()\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "mcqa", "--limit", "2", "--model", "scripted/echo", "-o", "cli.jsonl"]
    assert main.run([*arguments, "--agent", "own/asks_once.py"]) == 0
    assert json.loads(Path("cli_run.json").read_text())["settings"]["agent"] == "asks_once"
    agent = "./own/asks_once.py"
    examples = catalogue.environment("mcqa").examples
    with (
        connect_sync(model="scripted/echo", environments="mcqa", agents=agent) as gym,
        open_dataset(examples, environment="mcqa", limit=2) as dataset,
    ):
        records = list(gym.rollouts(dataset, agent=agent))
        assert [run.agents for run in gym.status().runs] == [["asks_once"]]
    assert [record.reward is not None for record in records] == [True, True]
