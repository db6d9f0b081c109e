"""Text adventures: which games there are, what a command is, and games that are played to their end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_resources.adventures.game_process import command
from gym_resources.adventures.tales_games import EXPRESS, SCIENCE, java
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError, UsageError
from resources.judging import NEMO_GYM_ROWS, row, usable
from tables import table

pytestmark = pytest.mark.anyio
NAME = "tales"


@pytest.fixture
def resource() -> Any:
    environment = usable(NAME)
    return environment.resource


@table(
    ("text", "found"),
    [
        ("take lamp", "take lamp"),
        ("I need light.\n\n> `take lamp`\n", "take lamp"),
        ("<think>north?</think>\ngo south", "go south"),
        ("<think>north?", ""),
        ("", ""),
        ("``\n**", ""),
        ("x" * 1_000_000, "x" * 200),
    ],
)
def test_the_last_line_is_the_command(text: str, found: str) -> None:
    assert command(text) == found


def test_all_games_have_a_number() -> None:
    assert (len(EXPRESS), len(SCIENCE)) == (16, 30)
    assert list(SCIENCE) == sorted(SCIENCE)
    for framework, number in (("textworld_express", 16), ("scienceworld", 30)):
        with pytest.raises(TaskError, match=f"has {number} games"):
            catalogue.environment(NAME).resource.task(row(framework=framework, task_no=number))


@pytest.mark.parametrize("framework", ["textworld", "alfworld", "jericho"])
async def test_games_that_cannot_be_had_are_refused_before_a_model_is_asked(framework: str) -> None:
    environment = catalogue.environment(NAME)
    assert environment.definition.opens_first
    with pytest.raises(TaskError, match="leave rows of"):
        async with session_of(environment.resource, row(framework=framework)):
            pass


def test_nemo_gyms_rows_are_read() -> None:
    if not NEMO_GYM_ROWS.is_dir():
        pytest.skip("NeMo Gym's rows are not here")
    lines = (NEMO_GYM_ROWS / NAME / "example.jsonl").read_bytes().splitlines()
    assert len([catalogue.environment(NAME).resource.task(line) for line in lines]) == 5


def test_without_java_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert java() is None
    require = catalogue.environment(NAME).definition.require
    assert require is not None
    with pytest.raises(UsageError, match="apt install"):
        require()


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_game_is_played_to_its_end(resource: Any) -> None:
    example = examples.read(catalogue.environment(NAME))[0]
    async with session_of(
        resource, json.dumps({**example.fields, "admissible_commands": True}).encode()
    ) as session:
        (first,) = await resource.reset(session)
        assert "You can: " in json.loads(bytes(first))["content"]
        for strange in ("sing", "\u0000" * 50, "take " * 60, "'; drop table; --"):
            assert not (await resource.step(session, make_response(strange or "x"))).terminated
        for turn in example.turns:
            step = await resource.step(session, make_response(*turn))
        assert step.terminated
        verdict = await resource.verify(session, make_response("x"))
    assert (verdict.reward, verdict.fields["moves"]) == (1.0, 4 + len(example.turns))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_game_of_scienceworld_gives_a_part_of_the_score(resource: Any) -> None:
    task = row(framework="scienceworld", task_no=6, seed=1237, steps=2)
    async with session_of(resource, task) as session:
        (first,) = await resource.reset(session)
        assert "task is to" in json.loads(bytes(first))["content"].lower()
        assert not (await resource.step(session, make_response("look around"))).terminated
        assert (await resource.step(session, make_response("inventory"))).terminated
        verdict = await resource.verify(session, make_response("x"))
    assert 0.0 <= verdict.reward < 1.0
