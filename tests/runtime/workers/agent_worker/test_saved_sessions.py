"""Sessions that save their state: another worker continues from it, and repeats only the calls after it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from gym_runtime import Environment, Reply, Session, SessionLost, Task, Verdict, tool
from gym_runtime.adapters import Rollout
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.messages.outcomes import Completed
from gym_runtime.timing import SESSIONS_SWEPT_S
from gym_runtime.workers import saved_parts
from gym_runtime.workers.resource_worker import SESSION_IDLE_S
from gym_testing.small_system import (
    Engine,
    Hang,
    SmallSystem,
    answer,
    environment,
    function_call,
    rollout_spec,
    row,
    small_system,
)
from runtime.workers.agent_worker.agents import row_of

pytestmark = pytest.mark.anyio


class Log(Session[Task]):
    """Its answers hold a time, so that its calls cannot be repeated; it saves after each ``every`` calls."""

    every: ClassVar[int] = 1
    done: ClassVar[list[str]]

    async def open(self) -> None:
        self.lines: list[str] = []
        self.clock = len(self.done)

    @tool
    def write(self) -> str:
        """Write a line."""
        self.done.append("write")
        self.lines.append("line")
        return f"{len(self.lines)} lines at {self.clock if self.every == 1 else 0}"

    async def save(self) -> Any:
        if self.store is None or len(self.lines) % self.every:
            return None
        return {"text": await self.store.put("\n".join(self.lines).encode())}

    async def on_restore(self, saved: Any) -> None:
        assert self.store is not None
        self.done.append("restore")
        self.lines = (await self.store.get(saved["text"])).decode().split()

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(len(self.lines)))


class Unlucky:
    """An agent whose session's worker dies after so many calls of a tool; ``spoil`` runs then, too."""

    def __init__(self, system: SmallSystem, log: LoadedEnvironment, after: int, *, spoil: str = "") -> None:
        self.system, self.log, self.after, self.spoil = system, log, after, spoil

    async def run(self, rollout: Rollout) -> None:
        for number in range(4):
            turn = await rollout.respond()
            if number == self.after:
                self.after = -1
                await self.system.add_resource(self.log, name="resource-2")
                self.system.kill("resource-1")
                if self.spoil:
                    await self.system.bus.forget(self.spoil)
            await rollout.call_tools(turn.function_calls)


def log(every: int) -> LoadedEnvironment:
    kind = type("EachLog", (Log,), {"every": every, "done": []})
    return environment(Environment(resource=kind, description="a log"), "sample")


def done(log: LoadedEnvironment) -> list[str]:
    return log.resource.session_type.__dict__["done"]


def kept(folder: Path) -> dict[str, list[str]]:
    """The parts of each rollout in a folder."""
    return {one: os.listdir(folder / one) for one in os.listdir(folder)}


@pytest.fixture
async def system() -> AsyncGenerator[SmallSystem]:
    async with small_system() as system:
        await system.add_model(Engine(*[answer(function_call("write"))] * 9))
        yield system


@pytest.fixture(params=["broker", "folder"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    if request.param == "broker":
        return None
    monkeypatch.setenv(saved_parts.FOLDER, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("every", "repeated"), [(1, 0), (2, 1)])
async def test_only_the_calls_after_the_last_state_are_repeated(
    system: SmallSystem, folder: Path | None, every: int, repeated: int
) -> None:
    sessions = log(every)
    await system.add_resource(sessions)
    await system.add_agent({"tool_loop": Unlucky(system, sessions, 3)})
    (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.attempt, record.reward) == (Completed(), 1, 4.0)
    assert done(sessions) == ["write"] * 3 + ["restore"] + ["write"] * (repeated + 1)
    about = row_of(record)["_gym"]
    assert (about["rebuilt_sessions"], about.get("repeated_calls", 0)) == (1, repeated)
    if folder is not None:
        assert list(kept(folder)) == [record.rollout_id]
        assert len(kept(folder)[record.rollout_id]) == (4 if every == 1 else 2)
        # As if nothing had been put there for a while; then a worker sees that the rollout is over.
        os.utime(folder / record.rollout_id, (time.time() - 2 * SESSION_IDLE_S,) * 2)
        await anyio.sleep(2 * SESSIONS_SWEPT_S)
        with anyio.fail_after(60):
            while kept(folder):
                await anyio.sleep(1)


class Perishable(Log):
    """What its third call has done is lost when it is saved, once."""

    done: ClassVar[list[str]] = []

    async def save(self) -> Any:
        if len(self.lines) == 3 and "lost" not in self.done:
            self.done.append("lost")
            raise SessionLost("the files of this call are gone")
        return await super().save()


class Writer:
    """An agent that calls a tool four times."""

    async def run(self, rollout: Rollout) -> None:
        for _ in range(4):
            turn = await rollout.respond()
            await rollout.call_tools(turn.function_calls)


async def test_a_call_whose_effects_are_lost_while_they_are_saved_is_made_again(system: SmallSystem) -> None:
    await system.add_resource(
        environment(Environment(resource=Perishable, description="a log"), "sample"), name="resource-1"
    )
    await system.add_agent({"writer": Writer()})
    (record,) = await system.make(rollout_spec(row(), agent="writer"))
    assert (record.outcome, record.reward, record.attempt) == (Completed(), 4.0, 1)
    assert Perishable.done == ["write", "write", "write", "lost", "restore", "write", "write"]


class Doomed(Log):
    """It hangs while it saves the state after the third call, once: before that is stored, or after."""

    done: ClassVar[list[str]]
    stored: ClassVar[bool]

    async def save(self) -> Any:
        if len(self.lines) == 3 and "saving" not in self.done:
            saved = await super().save() if self.stored else None
            assert not self.stored or saved
            self.done.append("saving")
            await anyio.sleep_forever()
        return await super().save()


@pytest.mark.parametrize("stored", [False, True])
async def test_the_worker_dies_before_it_answers_and_the_call_is_made_again_on_the_state_before(
    system: SmallSystem, folder: Path | None, stored: bool
) -> None:
    """Also where the state after the call was stored: no answer has named it."""
    kind = type("EachDoomed", (Doomed,), {"done": [], "stored": stored})
    sessions = environment(Environment(resource=kind, description="a log"), "sample")
    await system.add_resource(sessions, name="resource-1")
    await system.add_agent({"writer": Writer()})
    await system.enqueue(rollout_spec(row(), agent="writer"))
    with anyio.fail_after(60):
        while "saving" not in done(sessions):
            await anyio.sleep(0.01)
    system.kill("resource-1")
    await system.add_resource(sessions, name="resource-2")
    (record,) = await system.records(1)
    assert (record.outcome, record.reward, record.attempt) == (Completed(), 4.0, 1)
    assert done(sessions) == [*["write"] * 3, "saving", "restore", *["write"] * 2]
    about = row_of(record)["_gym"]
    assert (about["rebuilt_sessions"], about.get("repeated_calls", 0)) == (1, 0)
    if folder is not None:
        assert list(kept(folder)) == [record.rollout_id]


async def test_both_workers_die_and_the_journal_knows_the_state(system: SmallSystem) -> None:
    sessions = log(1)
    await system.add_resource(sessions)
    engine = Engine(*[answer(function_call("write"))] * 2, Hang(), by_attempt={2: [answer("done")]})
    system.kill("model-1")
    await system.add_model(engine, name="model-2")
    await system.add_agent()
    await system.enqueue(rollout_spec(row()))
    await engine.calls.until(3)
    system.kill("agent-1")
    system.kill("resource-1")
    await system.add_resource(sessions, name="resource-2")
    await system.add_agent(name="agent-2")
    (record,) = await system.records(1)
    assert (record.outcome, record.attempt, record.reward) == (Completed(), 2, 2.0)
    # The second call's answer was not journaled: it is made again, on the state before it.
    assert done(sessions) == ["write", "write", "restore", "write"]
    assert len(engine.calls.items) == 4


async def test_without_what_was_saved_the_rollout_starts_anew_and_says_why(system: SmallSystem) -> None:
    sessions = log(1)
    await system.add_resource(sessions)
    await system.add_agent({"tool_loop": Unlucky(system, sessions, 2, spoil="journal.run.0.0.0.role.*")})
    (record,) = await system.make(rollout_spec(row()))
    assert (record.outcome, record.attempt, record.reward) == (Completed(), 2, 4.0)
    (why,) = row_of(record)["_gym"]["started_anew"]
    assert why.startswith(
        "SessionLost: resource 'sample' cannot restore what a lost session has saved: part "
    )


async def test_a_rollout_without_a_journal_saves_nothing(system: SmallSystem) -> None:
    sessions = log(1)
    await system.add_resource(sessions)
    await system.add_agent({"tool_loop": Unlucky(system, sessions, 9)})
    (record,) = await system.make(rollout_spec(row(), durability="result"))
    assert (record.reward, await system.bus.counts("journal.>")) == (4.0, {})


async def test_parts_are_checked_and_stay_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = saved_parts.FolderParts(tmp_path, "/run/x.0.0")
    name = await parts.put(b"one")
    assert await parts.put(b"one") == name
    ((place, names),) = kept(tmp_path).items()
    assert names == [name]
    assert await parts.get(name) == b"one"
    (tmp_path / place / name).write_bytes(b"two")
    for wrong in (name, "../../etc/passwd", "0" * 32):
        with pytest.raises(Exception, match=r"is damaged|is gone"):
            await parts.get(wrong)
    monkeypatch.setenv(saved_parts.FOLDER, str(tmp_path))
    assert await saved_parts.idle_rollouts(-1.0, 9) == ["/run/x.0.0"]
    os.utime(tmp_path / place, (0, 0))
    assert await saved_parts.idle_rollouts(-1.0, 9) == []
    assert not kept(tmp_path)  # it was older than any journal
