"""What an intruder with a worker's rights stores and announces, and what others see of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from gym_runtime import clock, connect
from gym_runtime.cli import main
from gym_runtime.client import RunInfo
from gym_runtime.messages.outcomes import Completed, RolloutRecord, encode_record
from gym_runtime.messages.stored_records import encode_run
from gym_runtime.rpc.members import Heartbeat, encode_heartbeat
from gym_runtime.rpc.watch import Members
from gym_runtime.system.private_broker import Broker
from gym_runtime.timing import MEMBER_ANSWER_S
from gym_testing.background import background
from msgspec import Raw
from runtime.bus.conftest import linked
from runtime.cli.started import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

FORGED = 4000
STATUS_S = 3.0
"""One second of it waits for the silent ones. The rest is measured as CPU time, which a busy machine hardly
changes: 0.4 s, on a slow one three times as much."""
PYTHON_S = 2.0
"""CPU time that the start of a command may take: 0.7 s."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    broker = Broker(tmp_path)
    yield broker.start()
    broker.stop()


async def test_a_second_result_without_the_workers_condition_is_not_taken(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def result(reward: float) -> bytes:
        about = {"run": "run", "task_index": 0, "rollout_index": 0, "environment": "e"}
        return encode_record(
            RolloutRecord(**about, outcome=Completed(), row=Raw(b"{}"), reward=reward)  # type: ignore[arg-type]
        )

    async with connect(nats=url) as gym, linked(url) as intruder:
        await gym.driver.open_run(RunInfo(run="run", total=2))
        assert await gym.driver.bus.commit("rollout.run.0.0", result(0.0))
        assert not await gym.driver.bus.commit("rollout.run.0.0", result(0.5))
        stored = await intruder.ask("gym.rollout.run.0.0", result(1.0), within_s=5)
        assert json.loads(stored.payload)["seq"] == 2
        last = result(0.25).replace(b'"task_index":0', b'"task_index":1')
        assert await gym.driver.bus.commit("rollout.run.1.0", last)
        found = [(one.task_index, one.reward) async for one in gym.collect("run")]
    assert found == [(0, 0.0), (1, 0.25)]
    said = "".join(capsys.readouterr())
    assert said.count("the rollout has a result already, and the first one counts") == 1


async def test_thousands_of_forged_workers_hardly_delay_a_status(url: str) -> None:
    """They listen, so that the broker does not say that they are gone, and never answer."""
    async with connect(nats=url) as gym, linked(url) as intruder:
        members = Members(gym.driver.bus)
        async with background(members.follow):
            asked: list[str] = []
            intruder.listen("gym.alive.>", lambda subject, *_: asked.append(subject))
            view = members.views["agent"]
            while len(view.alive()) < FORGED:
                # Again where the follower did not listen yet.
                for number in range(FORGED):
                    forged = Heartbeat(worker=f"forged-{number}", kind="agent", pools=[f"agent-{number}"])
                    if not view.knows(forged.worker):
                        intruder.post(f"gym.join.{forged.name}", encode_heartbeat(forged))
                await intruder.settle()
                await anyio.sleep(0.2)
            # The follower gives its list to others once it has called the roll.
            while len(await gym.workers()) < FORGED:
                pass
            await gym.driver.open_run(RunInfo(run="forged", total=1, created_s=clock.now()))
            asked.clear()
            began_s = time.process_time()
            found = await gym.status()
            assert time.process_time() - began_s < STATUS_S - MEMBER_ANSWER_S
            assert len(found.workers) == FORGED
            assert len(found.queues) == 256
            # The run's client is silent, too, and both are waited for together.
            await intruder.settle()
            assert asked.index("gym.alive.client.forged") < FORGED / 2
            before_s = children_s()
            await anyio.run_process([SCRIPT, "status", "--nats", url])
            assert children_s() - before_s < STATUS_S - MEMBER_ANSWER_S + PYTHON_S


def children_s() -> float:
    """The CPU time of this process's children that have ended."""
    return os.times().children_user + os.times().children_system


async def store_junk(url: str) -> None:
    async with connect(nats=url) as gym:
        for number, junk in enumerate((b"\xff", b"null", b'{"run":"x"}', b"\x00gym-blob\x00junk")):
            await gym.driver.bus.append(f"runs.junk-{number}", junk)
        odd = RunInfo(run="odd", total=1, model="a/\x1b]52;c;eA==\x07b", environments=["\x9b2J"])
        await gym.driver.bus.append("runs.odd", encode_run(odd))


def test_what_an_intruder_stores_ends_no_command_and_documents_stay_documents(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    anyio.run(store_junk, url)
    for command in (["status"], ["ls", "runs"], ["top", "--once"]):
        for more in ([], ["--json"]):
            assert main.run([*command, *more, "--nats", url]) == 0
            out, err = capsys.readouterr()
            # Documents are for programs: they have every character, as JSON writes it.
            assert not {"\x1b", "\x07", *([] if more else ["\x9b"])} & {*out, *err}
            assert "odd" in out or command == ["top", "--once"]
            if more:
                json.loads(out)
    assert main.run(["cancel", "junk-0", "--nats", url]) == 0
    assert capsys.readouterr().out == "cancelled junk-0\n"
