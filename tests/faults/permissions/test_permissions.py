"""Four identities work together, on brokers of any age."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from faults.permissions.identities import WORKERS, identities, serving
from gym_deploy.broker_plan import BrokerPlan, configure
from gym_runtime import connect
from gym_runtime.bus.blobs import SMALL_INLINE_BYTES
from gym_runtime.bus.identity import CA, CREDENTIALS
from gym_runtime.bus.link import Role
from gym_runtime.client import make_pools
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import find_binary
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]


JUDGED = '''"""Judged by a model."""

from gym_runtime import Environment, Model, Reply, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply, judge: Model) -> Verdict:
    return Verdict(float("[[A=B]]" in (await judge.ask("right?")).text))


environment = Environment(resource=verify, description="Judged.", roles=("judge",))
'''


LARGE = "x" * (SMALL_INLINE_BYTES + 1000)


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
    assert len(set(seeds)) == 5
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
            with anyio.fail_after(20 * busy()):
                await system.until("waiting", said.append)
            assert "run 'gym-runtime status' with a client's" in said[-1].reason
            async with connect(url) as gym:
                with anyio.fail_after(20 * busy()):
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
async def test_failed_rollouts_are_run_again(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = [start(url, folder, role, monkeypatch) for role in ("agent", "resource")]
    refuses = ModelSettings(provider="scripted", name="judge-refusing")
    with monkeypatch.context() as patched:
        patched.setenv(CREDENTIALS, str(folder / "model.seed"))
        pool = PoolSpec(kind="model", names=("policy",), model=refuses)
        systems.append(launch(SystemSpec(pools=(pool,), nats=(url,))))
    try:
        async with connect(url) as gym:
            for system in systems:
                await system.until("all_ready")
            run = await gym.publish(ROWS, environment="example_session_state_mgmt")
            while (await gym.progress([run]))[run.run].done != len(ROWS):
                await anyio.sleep(0.05)
            assert await gym.retry_failed(run.run) == len(ROWS)
            records = [record async for record in gym.collect(run.run)]
        assert [record.attempt for record in records] == [2] * len(ROWS)
    finally:
        for system in systems:
            await system.stop()
    assert "Violation" not in (folder / "broker.log").read_text()


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
