"""Assets of an environment: sessions, rollouts and the command that fetches them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from data.assets.asset_origin import HELLO, Origin
from gym_runtime import assets as cache
from gym_runtime.cli import main
from gym_runtime.environment import catalogue
from gym_runtime.errors import AssetMissing
from gym_runtime.files.rows import expand
from gym_runtime.messages.outcomes import Completed, Failed
from gym_testing.small_system import Engine, answer, small_system
from resources.judging import row

ENVIRONMENT = """
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.assets import Asset
from gym_runtime.assets import find

THINGS = Asset(name="things", description="some things", licence="CC0-1.0", setting="GYM_TEST_THINGS",
               urls={"x.csv": "https://files.invalid/x.csv"}, size_bytes=10)

# -- part1 ---
class ThingsTask(Task):
    needs: str = ""

    def check_assets(self) -> None:
        if self.needs:
            find(THINGS, "with_things", self.needs)

async def verify(task: ThingsTask, reply: Reply) -> Verdict:
    return Verdict(1.0)

environment = Environment(resource=verify, description="With things.", assets=(THINGS,))
"""


@pytest.fixture
def with_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "with_things.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    return "with_things"


@pytest.mark.anyio
async def test_a_session_of_a_row_whose_file_is_missing_does_not_open(with_things: str) -> None:
    resource = catalogue.environment(with_things).resource
    await resource.close(await resource.open(row()))
    with pytest.raises(AssetMissing, match="gym-runtime prepare --assets with_things"):
        await resource.open(row(needs="x.csv"))


@pytest.mark.anyio
async def test_a_rollout_whose_file_is_missing_fails_before_the_model_is_asked(with_things: str) -> None:
    environment = catalogue.environment(with_things)
    async with small_system() as system:
        engine = Engine(answer("Yes."))
        await system.add_agent()
        await system.add_model(engine)
        await system.add_resource(environment)
        rows = [row(), row(needs="x.csv")]
        tasks = list(expand(rows, environment=with_things, run="run"))
        assert [task.opens_first for task in tasks] == [True, True]
        found = {record.task_index: record for record in await system.make(*tasks)}
        assert (found[0].outcome, found[0].reward) == (Completed(), 1.0)
        outcome = found[1].outcome
        assert isinstance(outcome, Failed)
        assert (outcome.fault.name, outcome.fault.stage) == ("AssetMissing", "open")
        assert "gym-runtime prepare --assets with_things" in outcome.fault.message
        assert len(engine.asked_s) == 1


def test_the_command_says_what_it_fetched(
    with_things: str, origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["prepare", "--assets", with_things]) == 2
    assert "https://files.invalid/x.csv cannot be fetched" in capsys.readouterr().err
    cached = cache.cached(catalogue.environment(with_things).definition.assets[0])
    cached.mkdir(parents=True, exist_ok=True)
    (cached / "x.csv").write_bytes(HELLO)
    known = cache.Fetched(
        url="https://files.invalid/x.csv", sha256=hashlib.sha256(HELLO).hexdigest(), size_bytes=6
    )
    (cached / "lock.json").write_bytes(msgspec.json.encode({"x.csv": known}))
    assert main.run(["prepare", "--assets", with_things]) == 0
    assert capsys.readouterr().out == f"things (CC0-1.0): all files are there, in {cached}\n"


def test_the_command_says_what_a_person_has_to_fetch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["prepare", "--assets", "spider2_lite"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "spider2-lite-databases (MIT): download it from https://github.com/xlang-ai/Spider2"
    )
    assert said.endswith("and set GYM_SPIDER2_DATABASES to a folder that has it\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "whose assets you want"),
        (["gsm8k_aviary"], "needs no files"),
        (["no_such_one"], "there is no env"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["prepare", "--assets", *arguments]) == 2
    assert said in capsys.readouterr().err
