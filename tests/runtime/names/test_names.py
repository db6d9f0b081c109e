"""A name in a row or a file of results is never a path; a name that a person gave may be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from gym_models.replay import Adapter as Replay
from gym_runtime.cli import main
from gym_runtime.client import Client
from gym_runtime.environment import catalogue
from gym_runtime.errors import TaskError, UsageError
from gym_runtime.files.dataset import open_dataset
from gym_runtime.files.row_reader import BadRow, RowReader
from gym_runtime.files.rows import expand
from gym_runtime.workers.adapter import ModelSettings
from gym_testing.background import hosting
from gym_testing.checks.reverification import environments_of, reverify
from gym_testing.small_system import small_system
from runtime.names.hostile_rows import PATHS, TRAP, Place

pytestmark = pytest.mark.slow

DEAD = "nats://127.0.0.1:9"


MODEL = ("--model", "scripted/echo")


COMMANDS: dict[str, Callable[[Place, str], list[str]]] = {
    "run": lambda place, ref: ["run", "-i", str(place.rows(ref)), "-o", "out.jsonl", *MODEL],
    "publish": lambda place, ref: ["publish", str(place.rows(ref)), "--nats", DEAD],
    "publish NAME": lambda place, ref: [
        *("publish", str(place.rows(ref)), "--environment", "mcqa", "--nats", DEAD)
    ],
    "reverify": lambda place, ref: ["reverify", "--rollouts", str(place.stored(ref)), "-o", "out.jsonl"],
    "reverify --inputs": lambda place, ref: [
        *("reverify", "--rollouts", str(place.stored(ref)), "--inputs", str(place.folder / "rows.jsonl")),
        *("--set", "threshold=1", "-o", "out.jsonl"),
    ],
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


@pytest.mark.parametrize("what", PATHS)
def test_an_environment_that_takes_a_row_of_another_name_does_not_load_it(place: Place, what: str) -> None:
    ref = place.name(what)
    with open_dataset(place.rows(ref), environment="mcqa", adopt=True) as dataset:
        assert ([*dataset.environments], [*dataset.adopted]) == (["mcqa"], [ref])
    assert not place.mark.exists()


@pytest.mark.parametrize("what", PATHS)
def test_prepare_takes_a_row_of_another_name_and_does_not_load_it(place: Place, what: str) -> None:
    rows = str(place.rows(place.name(what)))
    assert main.run(["prepare", "mcqa", "--input", rows, "-o", "data"]) == 0
    assert not place.mark.exists()
    written = [json.loads(line) for line in (place.folder / "data/train.jsonl").read_bytes().splitlines()]
    assert {row["agent_ref"]["name"] for row in written} == {"mcqa"}


@pytest.mark.slow
@pytest.mark.anyio
async def test_no_client_takes_a_rows_name_as_a_path(place: Place) -> None:
    async def refused(what: str) -> None:
        row = {"responses_create_params": {"input": "go"}, "agent_ref": {"name": place.name(what)}}
        with pytest.raises(TaskError, match="no environment has agent_ref"):
            await anext(gym.rollouts([row]))
        with pytest.raises(TaskError, match="no environment has agent_ref"):
            await anext(gym.groups([row], repeats=2))
        with pytest.raises(UsageError, match="no environment has agent_ref"):
            await reverify(None, place.stored(place.name(what)).read_bytes())
        assert not place.mark.exists(), what

    async with small_system() as system, hosting() as tasks:
        gym = Client(system.bus, tasks)
        async with anyio.create_task_group() as calls:
            for what in PATHS:
                calls.start_soon(refused, what)
        assert await gym.runs() == []


@pytest.mark.anyio
async def test_recorded_rollouts_are_replayed_whatever_they_name(place: Place) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    place.rows(place.name("absolute"), response={"output": [message]}, _ng_task_index=0, _ng_rollout_index=0)
    async with Replay(ModelSettings(provider="replay", name="rows.jsonl")):
        pass
    assert not place.mark.exists()


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
    with pytest.raises(UsageError, match="'a b' cannot name an environment"):
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
