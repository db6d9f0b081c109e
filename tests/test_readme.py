"""Every command and snippet of the README is run, as it stands there.

Blocks say by their info string what they are: ``file=NAME`` is written to a folder of its own,
``in=counter`` is run in that folder. Only addresses of engines and ids of runs are filled in.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from stubs import stub_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent


class Block(NamedTuple):
    language: str
    options: dict[str, str]
    text: str


def blocks(language: str) -> list[Block]:
    found = [
        Block(kind, {name: value for name, _, value in (part.partition("=") for part in info.split())}, text)
        for kind, info, text in re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", README, re.M | re.S)
    ]
    return [block for block in found if block.language == language]


def commands(block: Block) -> list[str]:
    lines = [re.sub(r"(^|\s+)#.*$", "", line) for line in block.text.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with every file that the README shows."""
    for block in [*blocks("python"), *blocks("json")]:
        if "file" in block.options:
            (tmp_path / block.options["file"]).write_text(block.text)
    return tmp_path


def run(command: str, folder: Path, **environment: str) -> str:
    """Run a command line; what it printed. ``gym-runtime`` is this environment's."""
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **environment},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_ci_runs_the_two_commands_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert 'bash -euc "$(readme_command 1)"' in script
    assert script.rstrip().endswith('bash -euc "$(readme_command 2)"')
    first, second = (block.text for block in blocks("bash")[:2])
    assert "gym-runtime run" in first
    assert second.rstrip().endswith(".venv/bin/pytest")


@pytest.mark.soak
def test_first_command(folder: Path) -> None:
    command = blocks("bash")[0].text.strip().split(" && ")[-1].removeprefix(".venv/bin/")
    pytest.importorskip("xllamacpp", reason="needs pip install 'gym-runtime[embedded]'")
    assert "of 20 rollouts" in run(command, folder)
    assert len((folder / "results" / "mcqa-xstest.jsonl").read_text().splitlines()) == 20


@pytest.mark.parametrize("position", range(len(commands(blocks("bash")[2]))))
def test_everyday_commands(folder: Path, position: int) -> None:
    command = commands(blocks("bash")[2])[position]
    row = (ROOT / "resources" / "gym_resources" / "mcqa.jsonl").read_bytes().splitlines()[0]
    (folder / "mixed.jsonl").write_bytes(row[:-1] + b', "agent_ref": {"name": "mcqa_simple_agent"}}\n')
    if "reasoning_gym" in command:
        pytest.importorskip("reasoning_gym", reason="needs pip install 'gym-runtime[reasoning-gym]'")
    if "reverify" in command:
        run("gym-runtime run mcqa --model scripted/echo", folder)
    if "mixed.jsonl" in command:
        command += " --model scripted/echo"
    names = [part.partition("/")[2] for part in shlex.split(command) if part.startswith("openai/")]
    with stub_engine.running(*(["--model", names[0]] if names else [])) as engine:
        run(
            command.replace("http://127.0.0.1:8000/v1", engine.url),
            folder,
            OPENAI_BASE_URL=engine.url,
            OPENAI_API_KEY="any",
        )


def test_a_system_that_stays(folder: Path) -> None:
    start, publish, collect, status, cancel = commands(blocks("bash")[3])
    rows = ROOT / "resources" / "gym_resources" / "mcqa.jsonl"
    (folder / "rows.jsonl").write_bytes(rows.read_bytes())
    environment = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    with subprocess.Popen(
        shlex.split(start), cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as system:
        assert system.stdout is not None
        url = ""
        while not url:
            line = system.stdout.readline()
            assert line, "the system ended before it was ready"
            found = re.search(r"nats://\S+", line)
            url = found.group() if found else ""
        run_id = run(publish, folder, GYM_NATS_URL=url).strip().splitlines()[-1]
        run(collect.replace("RUN", run_id), folder, GYM_NATS_URL=url)
        assert len((folder / "results" / "run.jsonl").read_text().splitlines()) == 5
        assert "resource" in run(status, folder, GYM_NATS_URL=url)
        run(cancel.replace("RUN", run_id), folder, GYM_NATS_URL=url)
        system.terminate()
        assert system.wait(30) == 0


def test_library(folder: Path) -> None:
    (snippet,) = [block for block in blocks("python") if "file" not in block.options]
    (folder / "snippet.py").write_text(snippet.text)
    shown = run(f"{sys.executable} snippet.py", folder)
    assert len(shown.splitlines()) == 4


def test_training(folder: Path) -> None:
    shown = run(f"{sys.executable} train.py", folder).splitlines()
    assert [line.partition(" ")[0] for line in shown] == ["1", "2", "3"]
    assert all("[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0] [True, " in line for line in shown)


def test_models(folder: Path) -> None:
    (block,) = [block for block in blocks("bash") if "models" in block.options]
    with (
        stub_engine.running("--models", "Qwen/Qwen3-4B") as one,
        stub_engine.running("--models", "Qwen/Qwen3-4B") as two,
    ):
        (folder / "replicas.txt").write_text(f"{one.url}\n{two.url}\n")
        for command in commands(block):
            command = command.replace("http://127.0.0.1:8000/v1", one.url)
            run(command.replace("http://127.0.0.1:8001/v1", two.url), folder)
            assert len((folder / "results" / "mcqa.jsonl").read_text().splitlines()) == 5
            (folder / "results" / "mcqa.jsonl").unlink()


def test_a_harness(folder: Path) -> None:
    (block,) = [block for block in blocks("bash") if "harness" in block.options]
    (command,) = commands(block)
    run(command, folder)
    rows = (folder / "results" / "mcqa.jsonl").read_text().splitlines()
    assert len(rows) == 5
    assert all('"done"' in row for row in rows)


def test_environment(folder: Path) -> None:
    (block,) = [block for block in blocks("bash") if block.options.get("in") == "counter"]
    for command in commands(block):
        run(command, folder)
    assert len((folder / "results" / "counter.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("environment", "fields", "flags"),
    [
        ("capital", {"capital": "Paris"}, "--agent patient --model shout/anything"),
        ("guess", {"secret": 7}, "--model scripted/echo"),
    ],
)
def test_other_shapes_an_agent_and_an_adapter(
    folder: Path, environment: str, fields: dict[str, object], flags: str
) -> None:
    import json

    row = {**fields, "responses_create_params": {"input": "Go."}}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    run(f"gym-runtime run {environment} --input rows.jsonl {flags}", folder)
    (result,) = (folder / "results" / f"{environment}.jsonl").read_text().splitlines()
    assert json.loads(result)["reward"] == (1.0 if environment == "capital" else 0.0)


def test_table_of_environments_is_generated() -> None:
    shown = run("gym-runtime ls environments --markdown", ROOT)
    inside = README.split("<!-- environments -->")[1].split("<!-- /environments -->")[0]
    assert inside.strip() == shown.strip(), "put the output of this command between the markers"


def test_guarantees_name_tests_that_exist() -> None:
    table = README.split("## Guarantees")[1].split("## Benchmarks")[0]
    named = re.findall(r"`tests/([\w/]+\.py)(?:::(\w+))?`", table)
    assert named
    for path, name in named:
        text = (ROOT / "tests" / path).read_text()
        assert not name or f"def {name}(" in text, f"{path} has no {name}"
