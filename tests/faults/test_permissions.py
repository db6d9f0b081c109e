"""Four identities over TLS: together they make rollouts, and each is refused what is not its work.

The broker runs the configuration of ``gym-runtime broker``, with its keys and certificates. What is forbidden
is tried over the same connection that the role's own work goes over.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from gym_runtime import connect
from gym_runtime.bus import addresses, connection, identity, nats, nkeys
from gym_runtime.bus.identity import CA, CERTIFICATE, CREDENTIALS, KEY
from gym_runtime.bus.interface import INLINE_BYTES, Delivery, Incoming
from gym_runtime.bus.link import Role
from gym_runtime.bus.nats import NatsBus
from gym_runtime.bus.wire import decode_headers, encode_headers
from gym_runtime.client import RunInfo, make_pools
from gym_runtime.deploy.broker import BrokerPlan, configure
from gym_runtime.environment import catalogue
from gym_runtime.errors import BrokerError, UsageError
from gym_runtime.messages.outcomes import Completed, RolloutRecord
from gym_runtime.system.private_broker import find_binary
from gym_runtime.system.spec import Event, PoolSpec, SystemSpec
from gym_runtime.system.system import System, launch
from gym_runtime.testing.background import Mailbox
from gym_runtime.workers.adapter import ModelSettings

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120)]

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


def identities(folder: Path) -> Path:
    """A folder with keys, certificates and configuration, as the command makes them."""
    folder.mkdir(exist_ok=True)
    configure(BrokerPlan(folder=folder, node="server"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identities(tmp_path_factory.mktemp("identities"))


@contextmanager
def serving(folder: Path, *changes: tuple[str, str], log_name: str = "broker.log") -> Generator[str]:
    """The broker with that configuration on a port of its own; yields its URL."""
    text = (folder / "server.conf").read_text()
    for old, new in [("0.0.0.0:4222", "127.0.0.1:-1"), ("127.0.0.1:8222", "127.0.0.1:-1"), *changes]:
        assert old in text
        text = text.replace(old, new)
    (folder / "test.conf").write_text(text)
    command = [find_binary(), "-c", str(folder / "test.conf"), "--ports_file_dir", str(folder)]
    with (folder / log_name).open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    ports = folder / f"nats-server_{process.pid}.ports"
    try:
        while True:
            with suppress(FileNotFoundError, ValueError):
                yield json.loads(ports.read_text())["nats"][0].replace("nats://", "tls://")
                return
            assert process.poll() is None, (folder / log_name).read_text()
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


# ---- every verb of JetStream's interface and every subject, for every role

STREAMS = {
    "gym_TASKS": "gym.task.>",
    "gym_ROLLOUTS": "gym.rollout.>",
    "gym_JOURNAL": "gym.journal.>",
    "gym_RUNS": "gym.runs.>",
    "gym_BLOBS": "gym.blob.>",
}
OF_THE_ACCOUNT = (
    "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.TEMPLATE.NAMES", "META.LEADER.STEPDOWN", "SERVER.REMOVE",
    "ACCOUNT.PURGE.GYM", "ACCOUNT.STREAM.MOVE.GYM.gym_TASKS",
)  # fmt: skip
OF_A_STREAM = (
    "STREAM.INFO.S", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.DELETE.S", "STREAM.PURGE.S",
    "STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "STREAM.SNAPSHOT.S", "STREAM.RESTORE.S",
    "STREAM.LEADER.STEPDOWN.S", "STREAM.PEER.REMOVE.S", "DIRECT.GET.S", "DIRECT.GET.S.FILTER",
    "DIRECT.GET.S.gym.journal.r.0.0.0.role.x",
    "CONSUMER.CREATE.S", "CONSUMER.CREATE.S.c", "CONSUMER.CREATE.S.c.FILTER",
    "CONSUMER.CREATE.S.c.gym.>", "CONSUMER.DURABLE.CREATE.S.c", "CONSUMER.NAMES.S", "CONSUMER.LIST.S",
    "CONSUMER.INFO.S.c", "CONSUMER.DELETE.S.c", "CONSUMER.PAUSE.S.c", "CONSUMER.RESET.S.c",
    "CONSUMER.UNPIN.S.c", "CONSUMER.LEADER.STEPDOWN.S.c", "CONSUMER.MSG.NEXT.S.c",
)  # fmt: skip
SUBJECTS = (
    "gym.task.a.e.r", "gym.rollout.r.0.0", "gym.journal.r.0.0.0", "gym.runs.r", "gym.runs.r.cancelled.0",
    "gym.journal.r.0.0.0.role.x", "gym.members.model",
    "gym.blob.run.r.i.0", "gym.blob.brief.i.0", "gym.cancel.r", "gym.control.w", "gym.follow.r",
    *(f"gym.{verb}.{kind}.w" for verb in ("join", "alive", "gone") for kind in ("client", *WORKERS)),
    "gym.call", "gym.members.none", "gym.members.w",
    "gym.model.p", "gym.model.p.w", "gym.resource.e", "gym.resource.e.w", "gym.abort.w",
    "gym.abort.model.p", "gym.abort.resource.e", "gym.holds.w", "gym.over.e", "another.subject",
    *(f"gym.drain.{kind}.w" for kind in WORKERS),
    "$SYS.REQ.SERVER.PING",
    *(f"_INBOX.gym.{role}.{use}.x.1" for role in ("client", *WORKERS) for use in ("r", "s")),
)  # fmt: skip


def read(stream: str) -> list[str]:
    """The verbs with which a role reads a stream through a consumer of its own."""
    return [
        f"CONSUMER.{verb}"
        for verb in (f"CREATE.{stream}.c.FILTER", f"MSG.NEXT.{stream}.c", f"DELETE.{stream}.c")
    ]


MAY_ASK: dict[Role, list[str]] = {
    "client": [
        "INFO",
        *(
            f"STREAM.{verb}.{stream}"
            for verb in ("CREATE", "UPDATE", "INFO", "MSG.GET")
            for stream in STREAMS
        ),
        *(f"STREAM.PURGE.{stream}" for stream in STREAMS),
        "CONSUMER.INFO.gym_TASKS.c",
        "CONSUMER.CREATE.gym_TASKS.c.FILTER",
        "DIRECT.GET.gym_BLOBS.FILTER",
        *read("gym_ROLLOUTS"),
        *read("gym_RUNS"),
    ],
    "agent": [
        "INFO",
        "CONSUMER.CREATE.gym_TASKS.c.FILTER",
        "CONSUMER.MSG.NEXT.gym_TASKS.c",
        "STREAM.INFO.gym_JOURNAL",
        "STREAM.PURGE.gym_JOURNAL",
        "STREAM.MSG.GET.gym_JOURNAL",
        "STREAM.MSG.GET.gym_ROLLOUTS",
        "STREAM.MSG.GET.gym_RUNS",
        "DIRECT.GET.gym_BLOBS.FILTER",
        *read("gym_JOURNAL"),
        *read("gym_RUNS"),
    ],
    "resource": [
        "INFO",
        "STREAM.INFO.gym_ROLLOUTS",
        "STREAM.MSG.GET.gym_RUNS",
        "DIRECT.GET.gym_BLOBS.FILTER",
        "DIRECT.GET.gym_JOURNAL.gym.journal.r.0.0.0.role.x",
    ],
    "model": ["INFO", "DIRECT.GET.gym_BLOBS.FILTER"],
}
"""What each role may ask of JetStream. Everything else of the two lists above is refused."""

BLOBS = ["gym.blob.run.r.i.0", "gym.blob.brief.i.0"]
ANSWERS = [f"_INBOX.gym.{role}.r.x.1" for role in ("client", *WORKERS)]
JOIN, ALIVE, GONE = (
    [f"gym.{verb}.{kind}.w" for kind in ("client", *WORKERS)] for verb in ("join", "alive", "gone")
)
MAY_PUBLISH: dict[Role, list[str]] = {
    "client": [
        *("gym.task.a.e.r", "gym.runs.r", "gym.runs.r.cancelled.0", "gym.cancel.r"),
        *("gym.control.w", "gym.follow.r", "gym.join.client.w", "gym.gone.client.w", "gym.call", *BLOBS),
        *("gym.members.none", "gym.members.model", "gym.members.w", *ALIVE),
        *("gym.resource.e", "gym.resource.e.w", "gym.abort.w", "gym.abort.resource.e", "gym.holds.w"),
        *(f"gym.drain.{kind}.w" for kind in WORKERS),
        *("_INBOX.gym.agent.r.x.1", "_INBOX.gym.client.r.x.1"),
    ],
    "agent": [
        *("gym.rollout.r.0.0", "gym.journal.r.0.0.0", "gym.join.agent.w", "gym.call", *BLOBS),
        *("gym.members.none", "gym.members.model", "gym.members.w", *ALIVE, *GONE),
        "gym.journal.r.0.0.0.role.x",
        *("gym.model.p", "gym.model.p.w", "gym.resource.e", "gym.resource.e.w", "gym.holds.w", "gym.over.e"),
        *("gym.abort.w", "gym.abort.model.p", "gym.abort.resource.e"),
        *("$JS.ACK.gym_TASKS.c.1.1.1.1.1", *ANSWERS),
    ],
    "resource": [
        *("gym.join.resource.w", "gym.gone.resource.w", "gym.members.none", "gym.members.model"),
        *("gym.alive.model.w", "gym.model.p", "gym.model.p.w", "gym.abort.w", "gym.abort.model.p"),
        *("gym.holds.w", "gym.journal.r.0.0.0.role.x", *BLOBS, *ANSWERS),
    ],
    "model": ["gym.join.model.w", "gym.gone.model.w", "gym.members.none", *BLOBS, *ANSWERS],
}
MAY_HEAR: dict[Role, list[str]] = {
    "client": [
        *(*JOIN, *GONE),
        *("gym.alive.client.w", "gym.call", "gym.follow.r"),
        *("_INBOX.gym.client.r.x.1", "_INBOX.gym.client.s.x.1"),
    ],
    "agent": [
        *JOIN,
        *GONE,
        *("gym.alive.agent.w", "gym.call", "gym.members.none", "gym.members.model", "gym.members.w"),
        *("gym.cancel.r", "gym.drain.agent.w", "_INBOX.gym.agent.r.x.1", "_INBOX.gym.agent.s.x.1"),
    ],
    "resource": [
        *("gym.resource.e", "gym.resource.e.w", "gym.abort.w", "gym.abort.resource.e", "gym.over.e"),
        *("gym.holds.w", "gym.alive.resource.w", "gym.gone.resource.w", "gym.call"),
        *("gym.join.model.w", "gym.gone.model.w", "gym.drain.resource.w"),
        *("_INBOX.gym.resource.r.x.1", "_INBOX.gym.resource.s.x.1"),
    ],
    "model": [
        *("gym.model.p", "gym.model.p.w", "gym.abort.w", "gym.abort.model.p", "gym.control.w"),
        *("gym.holds.w", "gym.alive.model.w", "gym.gone.model.w", "gym.call", "gym.drain.model.w"),
        *("_INBOX.gym.model.r.x.1", "_INBOX.gym.model.s.x.1"),
    ],
}


def in_full(verb: str) -> str:
    """A verb of the tables as the subject on the wire."""
    stream = next((name for name in STREAMS if name in verb), "")
    return f"$JS.API.{verb.replace('FILTER', STREAMS.get(stream, ''))}"


class Probe(connection.Connection):
    """Says what the broker refused."""

    refused: set[str]

    def _on_refusal(self, text: str) -> None:
        self.refused.add(text.split('"')[1])

    async def may(self, subjects: list[str], attempt: Callable[[str], object]) -> list[str]:
        """Those of the subjects for which the attempt was not refused."""
        self.refused = set()
        for subject in subjects:
            attempt(subject)
        await self.settle()
        assert self.up
        return sorted(set(subjects) - self.refused)


@asynccontextmanager
async def probing(url: str, folder: Path, role: Role) -> AsyncGenerator[Probe]:
    probe = Probe(
        addresses.parse(url),
        inbox=f"_INBOX.gym.{role}",
        credentials=folder / f"{role}.seed",
        tls=identity.trust(),
    )
    await probe.dial()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe.run)
        yield probe
        await probe.close()


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["client", *WORKERS])
async def test_each_role_may_do_what_the_tables_say_and_nothing_else(
    url: str, folder: Path, role: Role
) -> None:
    verbs = [re.sub(r"\.S\b", f".{stream}", verb) for verb in OF_A_STREAM for stream in STREAMS]
    asked = [in_full(verb) for verb in (*OF_THE_ACCOUNT, *verbs)]
    acks = [f"$JS.{kind}.{stream}.c.1.1.1.1.1" for kind in ("ACK", "FC") for stream in STREAMS]
    # Without a subject to answer to, what is allowed is not done.
    async with probing(url, folder, role) as probe:
        may_ask = await probe.may(asked, lambda subject: probe.post(subject, b""))
        assert may_ask == sorted(map(in_full, MAY_ASK[role]))
        said = [*SUBJECTS, *acks]
        assert await probe.may(said, lambda subject: probe.post(subject, b"")) == sorted(MAY_PUBLISH[role])
        heard = await probe.may(
            [*SUBJECTS, ">", "gym.>", "_INBOX.>", "$JS.>", "$SYS.>"],
            lambda subject: probe.listen(subject, lambda *_: None),
        )
        assert heard == sorted(MAY_HEAR[role])


@pytest.mark.anyio
@pytest.mark.parametrize("role", ["resource", "model"])
async def test_who_lacks_the_reference_reads_no_large_payload_and_replaces_none(
    url: str, folder: Path, role: Role
) -> None:
    secret = b"a secret of another rollout " * 20_000
    async with as_role(url, folder, "client") as client, probing(url, folder, role) as thief:
        await client.enqueue("task.nobody.environment.theft", secret)
        taken: set[str] = set()
        chunks = [">", "run.>", "*.*.*.*", "run.theft.*.0", "run.theft.*.whole"]
        for pattern in chunks:
            answer = await thief.ask(f"$JS.API.DIRECT.GET.gym_BLOBS.gym.blob.{pattern}", b"", within_s=5)
            assert b"secret" not in answer.payload
            if subject := decode_headers(answer.header).get("Nats-Subject"):
                taken.add(subject)
        # That a subject can be learned is why the chunk is encrypted, and why it cannot be replaced.
        assert taken
        for subject in taken:
            for header in (
                {},
                {"Nats-Rollup": "sub"},
                {"Nats-TTL": "1"},
                {"Nats-Expected-Last-Sequence": "0"},
            ):
                stored = await thief.ask(subject, b"forged", header=encode_headers(header), within_s=5)
                assert b"error" in stored.payload
        done = Mailbox[bytes]()

        async def handle(delivery: Delivery) -> None:
            done.put(delivery.payload)
            await delivery.ack()

        async with as_role(url, folder, "agent") as agent, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.pull("task.nobody.>", consumer="n", slots=1, handle=handle))
            assert await done.until(1) == [secret]
            tasks.cancel_scope.cancel()


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
    monkeypatch.delenv(CREDENTIALS)
    with pytest.raises(BrokerError, match="refuses the credentials"):
        async with nats.connect(url):
            pass
    stranger = tmp_path / "stranger.seed"
    stranger.write_text(nkeys.new_seed())
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
        # The broker ends the connection after it was made: nothing may go on trying to make it again.
        assert [task for task in asyncio.all_tasks() if "Connection" in repr(task.get_coro())] == []
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
