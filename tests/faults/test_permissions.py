"""Four identities over TLS: together they make rollouts, and each is refused what is not its work.

The broker runs the configuration that ships in ``deploy/nats``, with keys and certificates made by the
script beside it. What is forbidden is tried over the same connection that the role's own work goes over.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.bus import connection as nats
from gym_runtime.bus.connection import NatsBus
from gym_runtime.bus.identity import CA, CERTIFICATE, CREDENTIALS, KEY
from gym_runtime.bus.interface import INLINE_BYTES, Delivery, Incoming
from gym_runtime.bus.link import Role
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError, UsageError
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import find_binary
from gym_runtime.system.spec import PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "nats"
WORKERS: tuple[Role, ...] = ("agent", "resource", "model")
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, certificates and configuration, as the script makes them."""
    pytest.importorskip("nkeys", reason="NKeys need pip install 'gym-runtime[nkeys]'")
    folder = tmp_path_factory.mktemp("identities")
    script = [sys.executable, str(DEPLOY / "make_identities.py"), str(folder)]
    subprocess.run([*script, "--host", "127.0.0.1", "--host", "localhost"], check=True, capture_output=True)
    return folder


@contextmanager
def serving(folder: Path, *changes: tuple[str, str]) -> Generator[str]:
    """The broker with that configuration on a port of its own; yields its URL."""
    text = (folder / "nats.conf").read_text()
    for old, new in [("0.0.0.0:4222", "127.0.0.1:-1"), ("127.0.0.1:8222", "127.0.0.1:-1"), *changes]:
        assert old in text
        text = text.replace(old, new)
    (folder / "test.conf").write_text(text)
    command = [find_binary(), "-c", str(folder / "test.conf"), "--ports_file_dir", str(folder)]
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    ports = folder / f"nats-server_{process.pid}.ports"
    try:
        while True:
            with suppress(FileNotFoundError, ValueError):
                yield json.loads(ports.read_text())["nats"][0].replace("nats://", "tls://")
                return
            assert process.poll() is None, (folder / "broker.log").read_text()
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture(autouse=True)
def as_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the client, by the variables that everybody uses."""
    monkeypatch.setenv(CA, str(folder / "ca.pem"))
    monkeypatch.setenv(CREDENTIALS, str(folder / "client.seed"))


def as_role(url: str, folder: Path, role: Role) -> nats.AbstractAsyncContextManager[NatsBus]:
    return nats.connect(url, role=role, credentials=folder / f"{role}.seed")


def start(url: str, folder: Path, role: Role, monkeypatch: pytest.MonkeyPatch) -> System:
    """The workers of one kind, with their own identity and no other."""
    model = ModelSettings(provider="scripted", name="message")
    pools = make_pools(["example_session_state_mgmt"], model, workers=1, concurrency=8)
    with monkeypatch.context() as patched:
        patched.setenv(CREDENTIALS, str(folder / f"{role}.seed"))
        return launch(SystemSpec(pools=tuple(pool for pool in pools if pool.kind == role), nats=(url,)))


def test_keys_are_for_their_owner_only(folder: Path) -> None:
    for secret in [folder, *folder.glob("*.seed"), *folder.glob("*.key"), folder / "nats.conf"]:
        assert not stat.S_IMODE(secret.stat().st_mode) & 0o077, secret
    seeds = [seed.read_text() for seed in folder.glob("*.seed")]
    assert len(set(seeds)) == 4
    configuration = (folder / "nats.conf").read_text() + (folder / "identities.conf").read_text()
    assert not any(seed in configuration for seed in seeds)


def test_another_prefix_is_another_system(folder: Path, tmp_path: Path) -> None:
    script = [sys.executable, str(DEPLOY / "make_identities.py"), str(tmp_path), "--prefix", "team.a"]
    subprocess.run(script, check=True, capture_output=True)
    text = (tmp_path / "nats.conf").read_text()
    assert '"team.a.task.>"' in text
    assert '"$JS.API.STREAM.PURGE.team_a_TASKS"' in text
    assert '"gym.' not in text
    assert subprocess.run([find_binary(), "-t", "-c", str(tmp_path / "nats.conf")]).returncode == 0


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
            status = await gym.status()
        assert sorted(worker.kind for worker in status.workers) == ["agent", "model", "resource"]
        assert [type(record.outcome) for record in records] == [Completed] * 6
        assert all(record.reward == 1.0 for record in records)
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
        await agent.renew("agent.a", b"x", ttl_s=4)
        assert [lease.name for lease in await client.alive("agent.a")] == ["agent.a"]
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
        "$JS.API.STREAM.DELETE.gym_TASKS",
    ],
    "agent": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.runs.r2",
        "gym.cancel.r1",
        "gym.lease.model.m",
        "gym.control.m",
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
        "gym.resource.mcqa",
        "gym.abort.agent.a",
        "gym.lease.agent.a",
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
        "$JS.API.CONSUMER.CREATE.gym_LEASES.c.gym.lease.>",
        "$JS.API.STREAM.DELETE.gym_LEASES",
        "_INBOX.gym.agent.s.abc.1.1",
    ],
    "model": [
        "gym.task.tool_loop.mcqa.r2",
        "gym.rollout.r2.0.0",
        "gym.resource.mcqa",
        "gym.lease.resource.r",
        "$JS.API.STREAM.MSG.GET.gym_JOURNAL",
        "$JS.API.STREAM.MSG.GET.gym_ROLLOUTS",
        "$JS.API.CONSUMER.CREATE.gym_JOURNAL.c.gym.journal.>",
        "$JS.API.STREAM.PURGE.gym_JOURNAL",
    ],
}
LISTEN: dict[Role, list[str]] = {
    "client": ["model.>", "resource.>", "journal.>"],
    "agent": ["model.policy", "resource.>", "rollout.>", "task.>"],
    "resource": ["rollout.>", "task.>", "journal.>", "model.>", "runs.>", "blob.>", "cancel.>"],
    "model": ["rollout.>", "task.>", "journal.>", "resource.>", "over.*", "blob.>"],
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


@pytest.mark.anyio
@pytest.mark.parametrize("role", WORKERS)
async def test_a_roles_answers_are_read_by_nobody_else(url: str, folder: Path, role: Role) -> None:
    with pytest.raises(BrokerError, match="for another kind of worker"):
        async with nats.connect(url, role=role, credentials=folder / "client.seed"):
            pass


@pytest.mark.anyio
async def test_without_a_key_or_trust_nobody_enters(
    url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nkeys

    monkeypatch.delenv(CREDENTIALS)
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with nats.connect(url):
            pass
    stranger = tmp_path / "stranger.seed"
    stranger.write_bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with nats.connect(url, credentials=stranger):
            pass
    monkeypatch.delenv(CA)
    with pytest.raises(BrokerError, match="certificate"):
        async with nats.connect(url, credentials=folder / "client.seed"):
            pass


@pytest.mark.anyio
async def test_a_broker_may_ask_for_our_certificate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any certificate of the authority's will do; the broker's own is one.
    with serving(folder, ("# verify: true", "verify: true")) as url:
        with pytest.raises(BrokerError):
            async with nats.connect(url):
                pass
        monkeypatch.setenv(CERTIFICATE, str(folder / "server.pem"))
        monkeypatch.setenv(KEY, str(folder / "server.key"))
        async with nats.connect(url) as bus:
            assert await bus.latest("runs.none") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variable", "content", "message"),
    [
        (CREDENTIALS, "", "No such file"),
        (CREDENTIALS, "password", "neither an NKey seed"),
        (CREDENTIALS, "SUBROKEN", "neither an NKey seed"),
        (CA, "", "No such file"),
        (CA, "password", f"{CA}="),
        (CERTIFICATE, "password", f"{CERTIFICATE}="),
        (KEY, "password", f"{KEY} is set and {CERTIFICATE} is not"),
    ],
)
async def test_a_file_that_is_none_is_said_and_its_content_is_not(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, content: str, message: str
) -> None:
    path = tmp_path / "file"
    if content:
        path.write_text(content)
    monkeypatch.setenv(variable, str(path))
    with pytest.raises(UsageError, match=message) as caught:
        async with nats.connect(url):
            pass
    assert not content or content not in str(caught.value)
