"""What each identity may do."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from faults.permissions.identities import WORKERS, as_role, identities, serving
from gym_runtime import connect
from gym_runtime.bus.identity import CA, CREDENTIALS
from gym_runtime.bus.interface import INLINE_BYTES, Delivery, Incoming
from gym_runtime.bus.link import Role
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.deploy.broker import BrokerPlan, configure
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import find_binary
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]


JUDGED = '''"""Judged by a model."""

from gym_runtime import Environment, Model, Reply, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply, judge: Model) -> Verdict:
    return Verdict(float("[[A=B]]" in (await judge.ask("right?")).text))


environment = Environment(resource=verify, description="Judged.", roles=("judge",))
'''


LARGE = "x" * (INLINE_BYTES + 1000)


ROWS = [
    {
        "responses_create_params": {
            "input": [{"role": "user", "content": f"count {LARGE if large else ''}"}]
        },
        "initial_count": 3,
        "expected_count": 3,
    }
    for large in (False, True)
]


def start(url: str, folder: Path, role: Role, monkeypatch: pytest.MonkeyPatch, **more: Any) -> System:
    """The workers of one kind, with their own identity and no other."""
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(["example_session_state_mgmt"], model, workers=1, concurrency=8)
    with monkeypatch.context() as patched:
        patched.setenv(CREDENTIALS, str(folder / f"{role}.seed"))
        chosen = tuple(pool for pool in pools if pool.kind == role)
        return launch(SystemSpec(pools=chosen, nats=(url,), **more))


def test_keys_are_for_their_owner_only(folder: Path) -> None:
    for secret in [folder, *folder.glob("*.seed"), *folder.glob("*.key"), folder / "server.conf"]:
        assert not stat.S_IMODE(secret.stat().st_mode) & 0o077, secret
    seeds = [seed.read_text() for seed in folder.glob("*.seed")]
    assert len(set(seeds)) == 4
    configuration = (folder / "server.conf").read_text() + (folder / "identities.conf").read_text()
    assert not any(seed in configuration for seed in seeds)


def test_another_prefix_is_another_system(folder: Path, tmp_path: Path) -> None:
    path = configure(BrokerPlan(folder=tmp_path, prefix="team.a"))
    text = path.read_text()
    assert '"team.a.task.>"' in text
    assert '"$JS.API.STREAM.PURGE.team_a_TASKS"' in text
    assert '"gym.' not in text
    assert subprocess.run([find_binary(), "-t", "-c", str(path)]).returncode == 0


@pytest.mark.anyio
async def test_four_identities_make_rollouts_together(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = [start(url, folder, role, monkeypatch) for role in WORKERS]
    try:
        records: list[RolloutRecord] = []
        async with connect(url) as gym:
            for system in systems:
                await system.until("all_ready")
            async for record in gym.rollouts(ROWS, environment="example_session_state_mgmt", repeats=3):
                records.append(record)
            for row in ROWS:
                async with gym.session(row, environment="example_session_state_mgmt") as session:
                    assert "3" in await session.call("get_counter_value")
                    assert (await session.verify(LARGE)).reward == 1.0
            status = await gym.status()
        assert sorted(worker.kind for worker in status.workers) == ["agent", "model", "resource"]
        assert [type(record.outcome) for record in records] == [Completed] * 6
        assert all(record.reward == 1.0 for record in records)
        async with connect(url) as gym:
            asked = await gym.drain(*WORKERS)
            assert sorted(worker.kind for worker, _ in asked) == ["agent", "model", "resource"]
        for system in systems:
            await system.until("stopped")
    finally:
        for system in systems:
            await system.stop()
    assert "Violation" not in (folder / "broker.log").read_text()


@pytest.mark.anyio
async def test_a_broker_that_was_configured_before_clients_had_sessions_refuses_only_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = identities(tmp_path / "identities")  # with a store and a log of its own
    monkeypatch.setenv(CA, str(folder / "ca.pem"))
    monkeypatch.setenv(CREDENTIALS, str(folder / "client.seed"))
    before = ('"gym.resource.>", "gym.abort.*", "gym.abort.resource.*", "gym.holds.*"\n', "")
    with serving(folder, before) as url:
        systems = [start(url, folder, role, monkeypatch) for role in WORKERS]
        try:
            async with connect(url) as gym:
                for system in systems:
                    await system.until("all_ready")
                with pytest.raises(BrokerError, match="does not let these credentials publish"):
                    await gym.verify(ROWS[0], "done", environment="example_session_state_mgmt")
                made = gym.rollouts(ROWS, environment="example_session_state_mgmt")
                assert [record.reward async for record in made] == [1.0, 1.0]
        finally:
            for system in systems:
                await system.stop()


@pytest.mark.anyio
async def test_workers_that_come_before_the_first_client_wait_for_its_streams(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(folder, (str(folder / "jetstream-server"), str(tmp_path)), log_name="first.log") as url:
        said: list[Event] = []
        system = start(url, folder, "agent", monkeypatch, wait_s=30.0)
        try:
            with anyio.fail_after(20):
                await system.until("waiting", said.append)
            assert "run 'gym-runtime status' with a client's" in said[-1].reason
            async with connect(url) as gym:
                with anyio.fail_after(20):
                    await system.until("all_ready", said.append)
                assert [worker.kind for worker in await gym.workers()] == ["agent"]
        finally:
            await system.stop()
    assert [event.event for event in said].count("waiting") == 1
    assert "streams not created" not in capfd.readouterr().err


@pytest.mark.anyio
async def test_workers_serve_on_a_broker_whose_permissions_are_older(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [(f', "gym.drain.{role}.*"', "") for role in WORKERS]
    older.append(
        (
            ', "$JS.API.CONSUMER.CREATE.gym_TASKS.*.gym.task.>"\n            "$JS.API.CONSUMER.CREATE.gym_R',
            '\n            "$JS.API.CONSUMER.CREATE.gym_R',
        )
    )
    with serving(
        folder, (str(folder / "jetstream-server"), str(tmp_path)), *older, log_name="older.log"
    ) as url:
        async with connect(url) as gym:
            systems = [start(url, folder, role, monkeypatch) for role in WORKERS]
            try:
                for system in systems:
                    await system.until("all_ready")
                name = "example_session_state_mgmt"
                made = [record async for record in gym.rollouts(ROWS[:1], environment=name)]
                assert [type(record.outcome) for record in made] == [Completed]
            finally:
                for system in systems:
                    await system.stop()


@pytest.mark.anyio
async def test_a_judge_is_asked_and_its_answer_journaled(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "judged.py"
    module.write_text(JUDGED)
    judge = ModelSettings(provider="scripted", name="judge")
    systems = [start(url, folder, "agent", monkeypatch), start(url, folder, "model", monkeypatch)]
    for pool in (
        PoolSpec(kind="resource", names=(str(module),)),
        PoolSpec(kind="model", names=("judge",), model=judge),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(CREDENTIALS, str(folder / f"{pool.kind}.seed"))
            systems.append(launch(SystemSpec(pools=(pool,), nats=(url,))))
    try:
        catalogue.environment(str(module))
        async with connect(url) as gym:
            for system in systems:
                await system.until("all_ready")
            rows = [{"responses_create_params": {"input": f"q{number}"}} for number in range(3)]
            records = [record async for record in gym.rollouts(rows, environment="judged")]
        assert [record.reward for record in records] == [1.0] * 3
        assert [record.roles["judge"].calls for record in records] == [1] * 3
    finally:
        for system in systems:
            await system.stop()
    assert "Violation" not in (folder / "broker.log").read_text()


@pytest.mark.anyio
async def test_each_role_can_do_all_of_its_work(url: str, folder: Path) -> None:
    large = os.urandom(INLINE_BYTES + 1)
    async with (
        as_role(url, folder, "client") as client,
        as_role(url, folder, "agent") as agent,
        as_role(url, folder, "model") as model,
    ):
        await client.enqueue("task.all.mcqa.r1", large)
        await agent.append("journal.r1.0.0.0", b"a", expect=0)
        assert await agent.append("journal.r1.0.0.0", b"b", expect=0) is None
        assert await agent.counts("journal.r1.0.0.0") == {"journal.r1.0.0.0": 1}
        assert (await anext(agent.records("journal.r1.0.0.0"))).payload == b"a"
        assert await agent.forget("journal.r1.0.0.0") == 1
        done = anyio.Event()

        async def handle(delivery: Delivery) -> None:
            assert await agent.commit("rollout.r1.0.0", delivery.payload)
            assert not await agent.commit("rollout.r1.0.0", b"another")
            await delivery.ack()
            done.set()

        async with anyio.create_task_group() as tasks:

            def answer(incoming: Incoming) -> None:
                tasks.start_soon(model.publish, incoming.reply, incoming.payload)

            async with model.serve("model.policy", answer, queue="model.policy"):
                deadline_s = time.time() + 10
                assert await agent.request("model.policy", large, deadline_s=deadline_s) == large
            tasks.start_soon(lambda: agent.pull("task.all.>", consumer="agent-all", slots=1, handle=handle))
            await done.wait()
            tasks.cancel_scope.cancel()
        assert [record.payload for record in await agent.latest("rollout.r1.0.0")] == [large]
        assert (await anext(client.records("rollout.r1.>"))).payload == large
        async with as_role(url, folder, "resource") as resource:
            answer = "journal.r1.0.0.0.role.a"
            await resource.append(answer, large)
            assert [record.payload for record in await resource.latest(answer, nearest=True)] == [large]
            assert await resource.latest("journal.r1.0.0.0.role.b", nearest=True) == []
        await client.depth("agent-all")
        await client.append("runs.r1", msgspec.json.encode(RunInfo(run="r1", total=1)))
        assert len(await client.latest("runs.*")) >= 1
        for stored in ("task.all.>", "rollout.r1.>", "journal.r1.>"):
            await client.forget(stored)


PUBLISH: dict[Role, list[str]] = {
    "client": [
        "gym.rollout.r2.0.0",
        "gym.journal.r2.0",
        "gym.model.policy",
        "gym.join.model.m",
        "gym.gone.model.m",
        "$JS.API.STREAM.DELETE.gym_TASKS",
    ],
    "agent": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.runs.r2",
        "gym.cancel.r1",
        "gym.join.model.m",
        "gym.control.m",
        "gym.drain.agent.a",
        "$JS.API.STREAM.DELETE.gym_ROLLOUTS",
        "$JS.API.STREAM.PURGE.gym_ROLLOUTS",
        "$JS.API.STREAM.CREATE.gym_OTHER",
        "$JS.API.STREAM.UPDATE.gym_ROLLOUTS",
        "$JS.API.CONSUMER.CREATE.gym_ROLLOUTS.c.gym.rollout.>",
    ],
    "resource": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.rollout.r2.0.0",
        "gym.journal.r2.0",
        "gym.runs.r2",
        "gym.cancel.r1",
        "gym.control.m",
        "gym.drain.agent.a",
        "gym.resource.mcqa",
        "gym.abort.agent.a",
        "gym.join.agent.a",
        "gym.gone.agent.a",
        "gym.gone.model.m",
        "gym.alive.agent.a",
        "gym.members.agent",
        "gym.call",
        "gym.journal.r2.0.0.0",
        "$JS.API.DIRECT.GET.gym_JOURNAL",
        "$JS.API.DIRECT.GET.gym_JOURNAL.gym.journal.r1.0.0.0",
        "$JS.API.STREAM.PURGE.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_ROLLOUTS",
        "$JS.API.STREAM.MSG.GET.gym_TASKS",
        "$JS.API.STREAM.MSG.GET.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_BLOBS",
        "$JS.API.STREAM.INFO.gym_BLOBS",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.SNAPSHOT.gym_ROLLOUTS",
        "$JS.API.DIRECT.GET.gym_ROLLOUTS",
        "$JS.API.DIRECT.GET.gym_ROLLOUTS.gym.rollout.r1.0.0",
        "$JS.API.DIRECT.GET.gym_BLOBS",
        "$JS.API.CONSUMER.CREATE.gym_ROLLOUTS.c.gym.rollout.>",
        "$JS.API.CONSUMER.CREATE.gym_TASKS",
        "$JS.API.CONSUMER.DURABLE.CREATE.gym_ROLLOUTS.c",
        "$JS.API.CONSUMER.CREATE.gym_RUNS.c.gym.runs.>",
        "$JS.API.STREAM.DELETE.gym_BLOBS",
        "_INBOX.gym.agent.s.abc.1.1",
    ],
    "model": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.rollout.r2.0.0",
        "gym.resource.mcqa",
        "gym.join.resource.r",
        "gym.gone.resource.r",
        "gym.members.model",
        "gym.drain.agent.a",
        "$JS.API.STREAM.MSG.GET.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_ROLLOUTS",
        "$JS.API.CONSUMER.CREATE.gym_JOURNAL.c.gym.journal.>",
        "$JS.API.STREAM.PURGE.gym_JOURNAL",
    ],
}


LISTEN: dict[Role, list[str]] = {
    "client": ["model.>", "resource.>", "journal.>", "members.*", "alive.*.*"],
    "agent": ["model.policy", "resource.>", "rollout.>", "task.>", "alive.model.*", "drain.model.*"],
    "resource": ["rollout.>", "task.>", "journal.>", "model.>", "runs.>", "blob.>", "cancel.>", "join.>"],
    "model": ["rollout.>", "task.>", "journal.>", "resource.>", "over.*", "blob.>", "gone.agent.*"],
}


@pytest.mark.anyio
@pytest.mark.parametrize(("role", "subject"), [(role, one) for role, all_ in PUBLISH.items() for one in all_])
async def test_a_role_is_refused_at_once_what_is_not_its_work(
    url: str, folder: Path, role: Role, subject: str
) -> None:
    async with as_role(url, folder, role) as bus:
        with pytest.raises(BrokerError, match="does not let these credentials publish to"):
            await bus._link.ask(subject, b"{}", within_s=5)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.anyio
@pytest.mark.parametrize(("role", "pattern"), [(role, one) for role, all_ in LISTEN.items() for one in all_])
async def test_a_role_does_not_hear_what_is_not_for_it(
    url: str, folder: Path, role: Role, pattern: str
) -> None:
    async with as_role(url, folder, role) as bus:
        with pytest.raises(BrokerError, match="does not let these credentials listen on"):
            async with bus.serve(pattern, lambda incoming: None):
                pass
