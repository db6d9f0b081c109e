"""Names that data say (rows, files of results, messages) are never paths, and never more than one token."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_models.replay import Adapter as Replay
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.checks.reverification import environments_of, reverify
from gym_runtime.cli import main
from gym_runtime.client import Client, RunInfo
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.row_reader import BadRow, RowReader
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.run_info import encode_run
from gym_runtime.system.private_broker import Broker
from gym_runtime.testing.background import hosting
from gym_runtime.testing.small_system import small_system
from gym_runtime.workers.adapter import ModelSettings

RUNTIME = Path(__file__).parents[2] / "runtime" / "gym_runtime"
TRAP = '''"""Leaves a mark when it is executed."""
from pathlib import Path

from gym_runtime import Environment, Reply, Task, Verdict

Path({mark!r}).touch()


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="A trap.", agent_refs=("the-trap",))
'''
PATHS = {
    "a module here": "trap",
    "a file here": "trap.py",
    "here": "./trap.py",
    "here without ending": "./trap",
    "below": "below/trap.py",
    "below without ending": "below/trap",
    "above": "../trap.py",
    "above without ending": "../trap",
    "absolute": "{folder}/trap.py",
    "absolute without ending": "{folder}/trap",
    "home": "~/trap.py",
    "URL": "file://{folder}/trap.py",
    "NUL": "trap.py\0",
    "NUL inside": "mcqa\0/../trap.py",
    "its agent": "trap_simple_agent",
    "listed by it": "the-trap",
    "dotted": "below.trap",
    "an installed one's file": "mcqa.py",
    "a module of Python": "antigravity",
}


class Place:
    """A working directory with traps all around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "executed"

    def name(self, what: str) -> str:
        return PATHS[what].format(folder=self.folder)

    def rows(self, ref: str, **more: Any) -> Path:
        row = {"responses_create_params": {"input": "go"}, "agent_ref": {"name": ref}, **more}
        path = self.folder / "rows.jsonl"
        path.write_text(json.dumps(row) + "\n")
        return path

    def stored(self, ref: str) -> Path:
        return self.rows(ref, response={"output": []}, reward=0.0, _ng_task_index=0, _ng_rollout_index=0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    here = tmp_path / "here"
    (here / "below").mkdir(parents=True)
    (here / "~").mkdir()
    found = Place(here)
    for folder in (here, here / "below", here / "~", tmp_path):
        for name in ("trap", "mcqa", "antigravity"):
            (folder / f"{name}.py").write_text(TRAP.format(mark=str(found.mark)))
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    return found


# -- rows and files of results ------------------------------------------------------------------------

DEAD = "nats://127.0.0.1:9"
MODEL = ("--model", "scripted/echo")
COMMANDS: dict[str, Callable[[Place, str], list[str]]] = {
    "run": lambda place, ref: ["run", "-i", str(place.rows(ref)), "-o", "out.jsonl", *MODEL],
    "run NAME": lambda place, ref: ["run", "mcqa", "-i", str(place.rows(ref)), "-o", "out.jsonl", *MODEL],
    "publish": lambda place, ref: ["publish", str(place.rows(ref)), "--nats", DEAD],
    "publish NAME": lambda place, ref: [
        *("publish", str(place.rows(ref)), "--environment", "mcqa", "--nats", DEAD)
    ],
    "reverify": lambda place, ref: ["reverify", "--rollouts", str(place.stored(ref)), "-o", "out.jsonl"],
    "reverify --inputs": lambda place, ref: [
        *("reverify", "--rollouts", str(place.stored(ref)), "--inputs", str(place.folder / "rows.jsonl")),
        *("--set", "threshold=1", "-o", "out.jsonl"),
    ],
    "prepare": lambda place, ref: ["prepare", "mcqa", "--input", str(place.rows(ref)), "-o", "data"],
}


@pytest.mark.parametrize("what", PATHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_a_rows_name_as_a_path(
    place: Place, command: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(COMMANDS[command](place, place.name(what))) != 0
    assert not place.mark.exists()
    said = capsys.readouterr().err
    assert "no environment has agent_ref" in said or "--set" in said or "setting" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("what", PATHS)
def test_no_function_takes_a_rows_name_as_a_path(place: Place, what: str) -> None:
    ref = place.name(what)
    line = json.dumps({"responses_create_params": {"input": "go"}, "agent_ref": {"name": ref}}).encode()
    with pytest.raises(UsageError, match="no environment has agent_ref"):
        catalogue.resolve_agent_ref(ref)
    with pytest.raises(UsageError, match="there is no environment"):
        catalogue.known_environment(ref)
    with pytest.raises(BadRow):
        RowReader("mcqa").read(line)
    with pytest.raises(TaskError):
        list(expand([line], run="r"))

    assert environments_of(place.stored(ref)) == []
    assert not place.mark.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("what", PATHS)
async def test_no_client_takes_a_rows_name_as_a_path(place: Place, what: str) -> None:
    row = {"responses_create_params": {"input": "go"}, "agent_ref": {"name": place.name(what)}}
    async with small_system() as system, hosting() as tasks:
        gym = Client(system.bus, tasks)
        with pytest.raises(TaskError, match="no environment has agent_ref"):
            await anext(gym.rollouts([row]))
        with pytest.raises(TaskError, match="no environment has agent_ref"):
            await anext(gym.groups([row], repeats=2))
        assert await gym.runs() == []
    with pytest.raises(UsageError, match="no environment has agent_ref"):
        await reverify(None, place.stored(place.name(what)).read_bytes())
    assert not place.mark.exists()


@pytest.mark.anyio
async def test_recorded_rollouts_are_replayed_whatever_they_name(place: Place) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    place.rows(place.name("absolute"), response={"output": [message]}, _ng_task_index=0, _ng_rollout_index=0)
    async with Replay(ModelSettings(provider="replay", name="rows.jsonl")):
        pass
    assert not place.mark.exists()


# -- what a person has named --------------------------------------------------------------------------


def test_a_row_may_name_a_file_that_a_person_has_named(place: Place) -> None:
    own = catalogue.environment("below/trap.py")
    assert place.mark.exists()
    for ref in ("trap", "trap_simple_agent", "the-trap"):
        assert catalogue.known_environment(catalogue.resolve_agent_ref(ref)) is own
    assert catalogue.address("trap") == str(place.folder / "below" / "trap.py")
    with pytest.raises(UsageError):
        catalogue.resolve_agent_ref("./trap.py")


def test_an_installed_name_is_the_installed_one_unless_a_person_says_a_path(place: Place) -> None:
    assert catalogue.environment("mcqa").source.parent.name == "gym_resources"
    assert catalogue.address("mcqa") == "mcqa"
    assert not place.mark.exists()
    own = catalogue.environment("./mcqa.py")
    assert place.mark.exists()
    assert catalogue.known_environment("mcqa") is own
    assert catalogue.environment("mcqa") is own


def test_a_file_whose_name_is_no_token_is_refused(place: Place) -> None:
    (place.folder / "a b.py").write_text(TRAP.format(mark=str(place.mark)))
    with pytest.raises(UsageError, match="'a b' cannot name a environment"):
        catalogue.environment("a b.py")
    assert not place.mark.exists()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_workers_take_what_the_command_line_named_and_no_file_that_lies_about(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--model", "scripted/echo")
    rows = place.rows("mcqa_simple_agent", options=[{"A": "x"}], expected_answer="A")
    assert main.run(["run", "-i", str(rows), "-o", "installed.jsonl", *model]) == 0
    assert not place.mark.exists()
    assert main.run(["run", "below/trap.py", "-i", str(place.rows("trap")), "-o", "own.jsonl", *model]) == 0
    assert place.mark.exists()
    assert json.loads(Path("own.jsonl").read_text())["reward"] == 1.0
    capsys.readouterr()


# -- with a broker ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker.start()
    broker.stop()


async def _waiting(url: str) -> None:
    """Two runs that wait for workers."""
    async with connect_bus([url]) as bus, hosting() as tasks:
        gym = Client(bus, tasks)
        for run in ("one", "two"):
            await gym.open_run(RunInfo(run=run, total=3, agents=["nobody"]))
            task = RolloutSpec(
                run=run,
                task_index=0,
                rollout_index=0,
                environment="e",
                agent="nobody",
                row=msgspec.Raw(b"{}"),
            )
            await gym.publish([msgspec.structs.replace(task, rollout_index=index) for index in range(3)])


async def _counted(url: str) -> tuple[dict[str, int], dict[str, str]]:
    async with connect_bus([url]) as bus, hosting() as tasks:
        found = await bus.counts("task.>")
        return dict(found), {info.run: info.state for info in await Client(bus, tasks).runs()}


@pytest.mark.slow
def test_cancelling_a_pattern_cancels_nothing(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    anyio.run(_waiting, broker)
    before = anyio.run(_counted, broker)
    assert before[0] == {"task.nobody.e.one": 3, "task.nobody.e.two": 3}
    for name in ("*", ">", "one.>", "one.*", "", "one two", "*.cancelled"):
        for more in ([], ["--task", "0"], ["--task", "0", "--rollout", "0"]):
            assert main.run(["cancel", name, *more, "--nats", broker]) == 2
            assert "cannot name a run" in capsys.readouterr().err
        assert main.run(["collect", name, "-o", "out.jsonl", "--nats", broker]) == 2
        capsys.readouterr()
    assert anyio.run(_counted, broker) == before
    assert main.run(["cancel", "one", "--nats", broker]) == 0
    after = anyio.run(_counted, broker)
    assert after == ({"task.nobody.e.two": 3}, {"one": "cancelled", "two": "active"})
    capsys.readouterr()


@pytest.mark.slow
def test_collecting_executes_nothing_that_a_run_names(
    broker: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = place.name("absolute")
    row = {"agent_ref": {"name": ref}, "response": {"output": []}, "reward": 1.0}
    record = RolloutRecord(
        run="theirs",
        task_index=0,
        rollout_index=0,
        environment=ref,
        outcome=Completed(),
        row=msgspec.Raw(msgspec.json.encode({**row, "_ng_task_index": 0, "_ng_rollout_index": 0})),
        attempt=1,
        reward=1.0,
    )
    info = RunInfo(run="theirs", total=1, environments=[ref, "trap"], agents=["../trap", "*", "trap"])

    async def store() -> None:
        async with connect_bus([broker], prefix="theirs") as bus:
            await bus.append("runs.theirs", encode_run(info))
            await bus.commit("rollout.theirs.0.0", encode_record(record))

    anyio.run(store)
    joined = ("--nats", broker, "--prefix", "theirs")
    assert main.run(["ls", "runs", *joined]) == 0
    assert main.run(["status", *joined]) == 0
    assert main.run(["collect", "theirs", "-o", "theirs.jsonl", *joined]) == 0
    assert main.run(["reverify", "--rollouts", "theirs.jsonl", "-o", "again.jsonl"]) == 1
    assert "no environment has agent_ref" in capsys.readouterr().err
    assert not place.mark.exists()


# -- everywhere ---------------------------------------------------------------------------------------

KINDS = {
    "task",
    "rollout",
    "runs",
    "journal",
    "cancel",
    "client",
    "control",
    "abort",
    "holds",
    "over",
    "agent",
}
CHECKED = {"token", "rollout_token"}
NO_NAMES = {
    "self.kind": "a word of the code",
    "kind": "a word of the code",
    "view.kind": "a word of the code",
    "task_index": "a number",
    "rollout_index": "a number",
    "task_index // BLOCK": "a number",
    "block": "a number",
    "parts": "numbers, formatted as such",
    "pattern": "checked as a pattern by the bus",
    "member.worker": "checked where the member is made",
    "self.worker": "of a Heartbeat, whose type checks it when it is decoded",
    "own": "this worker's own id",
    "request.key.rpartition('.')[2]": "names a call within its rollout; no subject",
    "worker": "of a Heartbeat, or the token of a subject that was received",
}


def unchecked(path: Path) -> Iterator[str]:
    """Places where a subject is made of something that `token` has not seen."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    nested = {inner for outer in functions for inner in ast.walk(outer) if inner is not outer}
    for function in functions:
        if function in nested:
            continue
        nodes = list(ast.walk(function))
        seen = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and "token(" in ast.unparse(node.value)
            for targets in node.targets
            for target in ast.walk(targets)
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.JoinedStr) and is_subject(node):
                for part in node.values:
                    if isinstance(part, ast.FormattedValue) and not checked(part.value, seen):
                        yield f"{path.name}:{node.lineno}: {ast.unparse(part.value)} in {ast.unparse(node)}"


def is_subject(node: ast.JoinedStr) -> bool:
    """``f"runs.{…"`` or ``f"{kind}.{…"``."""
    first, *others = node.values
    if isinstance(first, ast.Constant):
        return str(first.value).startswith((*(f"{kind}." for kind in KINDS), "agent-"))
    follows = others[0] if others else None
    dotted = isinstance(follows, ast.Constant) and str(follows.value).startswith(".")
    return dotted and "kind" in ast.unparse(first)


def checked(value: ast.expr, seen: set[str]) -> bool:
    called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    return called in CHECKED or ast.unparse(value) in {*seen, *NO_NAMES}


def test_every_name_in_a_subject_is_checked_where_it_is_put_there() -> None:
    folders = ("client", "workers", "gateway", "cli", "rollout", "rpc", "system")
    paths = [path for folder in folders for path in sorted((RUNTIME / folder).rglob("*.py"))]
    assert [line for path in paths for line in unchecked(path)] == []
