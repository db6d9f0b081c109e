"""A name in a subject is checked before it is put there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.cli import main
from gym_runtime.client import Client, RunInfo
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import encode_run
from gym_runtime.system.private_broker import Broker
from gym_testing.background import hosting
from runtime.names.hostile_rows import Place

RUNTIME = Path(__file__).parents[3] / "runtime" / "gym_runtime"


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
            await gym.driver.open_run(RunInfo(run=run, total=3, agents=["nobody"]))
            task = RolloutSpec(
                run=run,
                task_index=0,
                rollout_index=0,
                environment="e",
                agent="nobody",
                row=msgspec.Raw(b"{}"),
            )
            await gym.driver.publish(
                [msgspec.structs.replace(task, rollout_index=index) for index in range(3)]
            )


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
    "OWN": "a sign that no name has",
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


@pytest.mark.slow
def test_every_name_in_a_subject_is_checked_where_it_is_put_there() -> None:
    folders = ("client", "workers", "gateway", "cli", "rollout", "rpc", "system")
    paths = [path for folder in folders for path in sorted((RUNTIME / folder).rglob("*.py"))]
    assert [line for path in paths for line in unchecked(path)] == []
