"""What is particular to NATS: the cures of the client's hazards, restarts, freezes, lost answers."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop
from gym_runtime.bus import blobs, connection, stream_reader
from gym_runtime.bus import nats as client
from gym_runtime.bus.connection import Connection
from gym_runtime.bus.inline import SMALL_INLINE_BYTES
from gym_runtime.bus.interface import BLOB_BYTES, INLINE_BYTES, Delivery, Incoming, QueueDepth, Record
from gym_runtime.bus.link import RawAnswer
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.bus.subjects import Names
from gym_runtime.errors import (
    BrokerError,
    ConnectionLost,
    DeadlineExceeded,
    NoWorker,
    PayloadTooLarge,
    UsageError,
)
from gym_runtime.system.private_broker import Broker
from runtime.bus.conftest import StartServer, frozen, linked

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"nats{next(_numbers)}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker to kill, freeze and restart."""
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


def soon(seconds: float = 10.0) -> float:
    return time.time() + seconds


def link_of(bus: NatsBus) -> Connection:
    return bus._link  # type: ignore[attr-defined,return-value]


class Inbox:
    """Collects what arrives."""

    def __init__(self, count: int = 1) -> None:
        self.got: list[Any] = []
        self._count = count
        self._full = anyio.Event()

    def __call__(self, item: Any) -> None:
        self.got.append(item)
        if len(self.got) == self._count:
            self._full.set()

    async def full(self) -> list[Any]:
        with anyio.fail_after(15):
            await self._full.wait()
        return self.got


async def until_empty(bus: NatsBus) -> None:
    """Acknowledgements take effect at the broker, which tells nobody."""
    while await bus.counts("task.>"):
        await anyio.sleep(0.01)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead broker is noticed within a second."""
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.2)


# ---- connecting


@pytest.mark.asyncio
async def test_an_unreachable_broker_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DIAL_S", 0.3)
    with pytest.raises(BrokerError, match=r"no broker at nats://127\.0\.0\.1:9 .*nats-server -js"):
        async with connect("nats://me:secret@127.0.0.1:9"):
            pass


@pytest.mark.asyncio
async def test_a_frozen_broker_is_unreachable(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DIAL_S", 0.3)
    with frozen(broker.pid), pytest.raises(BrokerError, match="no broker at"):
        async with connect(broker.url):
            pass


@pytest.mark.asyncio
async def test_bad_credentials_fail_at_once_without_telling_them(broker_url: str) -> None:
    host = broker_url.rpartition("@")[2]
    with pytest.raises(BrokerError, match="refuses the credentials") as caught:
        async with connect(f"nats://gym:wrong@{host}"):
            pass
    assert "wrong" not in str(caught.value)


@pytest.mark.asyncio
async def test_a_missing_credentials_file_fails_at_once(broker_url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.creds: No such file"):
        async with connect(broker_url, credentials=tmp_path / "none.creds"):
            pass


@pytest.mark.asyncio
async def test_a_broker_without_jetstream_is_refused(start_server: StartServer) -> None:
    url, _ = start_server("")
    with pytest.raises(BrokerError, match="start it with 'nats-server -js'"):
        async with connect(url):
            pass


@pytest.mark.asyncio
async def test_a_broker_for_small_messages_is_refused(start_server: StartServer) -> None:
    url, _ = start_server("max_payload: 128KB")
    with pytest.raises(BrokerError, match="max_payload: 8MB"):
        async with connect(url):
            pass


@pytest.mark.asyncio
async def test_a_bad_prefix_is_refused() -> None:
    with pytest.raises(UsageError, match="prefix"):
        async with connect("nats://127.0.0.1:9", prefix="a b"):
            pass


@pytest.mark.slow
@pytest.mark.asyncio
async def test_tls(start_server: StartServer, broker_url: str, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -subj /CN=localhost"
    command = [openssl, *request.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    await anyio.run_process(command)
    url, _ = start_server(
        f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
        f'jetstream {{ store_dir: "{tmp_path / "js"}" }}\nmax_payload: 8MB'
    )
    with pytest.raises(BrokerError, match=r"(?i)certificate"):
        async with connect(url):
            pass
    with pytest.raises(BrokerError, match="offers none"):
        async with connect(broker_url.replace("nats://", "tls://")):
            pass
    async with connect(url, tls=ssl.create_default_context(cafile=certificate)) as bus:
        assert await bus.commit("rollout.r.1", b"x")


@pytest.mark.asyncio
async def test_an_error_inside_the_context_is_raised_as_it_is(broker_url: str, prefix: str) -> None:
    with pytest.raises(KeyError):
        async with connect(broker_url, prefix=prefix):
            raise KeyError


@pytest.mark.asyncio
async def test_streams_of_the_operator_keep_their_settings(broker_url: str, prefix: str) -> None:
    config = b'{"name":"%b_ROLLOUTS","subjects":["%b.rollout.>"],"max_age":3600000000000}' % (
        (prefix.encode(),) * 2
    )
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_ROLLOUTS", config, within_s=5)
        async with connect(broker_url, prefix=prefix) as bus:
            assert await bus.commit("rollout.r.1", b"x")
        info = await link.ask(f"$JS.API.STREAM.INFO.{prefix}_ROLLOUTS", b"", within_s=5)
        assert b'"max_age":3600000000000' in info.payload
        assert b'"allow_direct":true' in info.payload


@pytest.mark.asyncio
async def test_a_stream_that_cannot_serve_is_refused(broker_url: str, prefix: str) -> None:
    config = b'{"name":"%b_TASKS","subjects":["%b.task.>"],"retention":"interest"}' % ((prefix.encode(),) * 2)
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_TASKS", config, within_s=5)
    with pytest.raises(BrokerError, match=f"{prefix}_TASKS exists with other settings"):
        async with connect(broker_url, prefix=prefix):
            pass


# ---- the client's hazards


@pytest.mark.asyncio
async def test_publish_waits_while_the_buffer_is_full_and_can_be_cancelled_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
    published = 0
    async with connect(broker.url) as bus:
        with frozen(broker.pid), anyio.move_on_after(0.4) as scope:
            while True:
                await bus.publish("x", b"x" * 200_000)
                published += 1
        assert scope.cancelled_caught
        assert 1_000_000 < published * 200_000 < 100_000_000
        # Thawed, it goes on.
        await bus.publish("x", b"x")


@pytest.mark.asyncio
async def test_a_full_buffer_does_not_outlast_a_requests_deadline(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
    async with connect(broker.url) as bus:
        with frozen(broker.pid):
            with anyio.move_on_after(0.2):
                while True:
                    await bus.publish("x", b"x" * 200_000)
            with pytest.raises(DeadlineExceeded):
                await bus.request("x", b"", deadline_s=soon(0.2))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_failover_leaves_a_frozen_broker_with_unsent_bytes_and_fails_what_is_in_flight(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    pids = dict(start_server("") for _ in range(2))
    async with linked(*pids) as link:
        first = link.url
        back = anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        link.listen("never", lambda *_: None)
        raised: list[Exception] = []

        async def ask() -> None:
            try:
                await link.ask("never", b"", within_s=15)
            except ConnectionLost as error:
                raised.append(error)

        with frozen(pids[first]):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                for _ in range(20):
                    await link.send("x", b"x" * 500_000)
                await back.wait()
        assert raised
        assert link.url != first
        await link.settle()


@pytest.mark.asyncio
async def test_closing_fails_what_is_in_flight_at_once(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        asked = anyio.Event()

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await bus.request("silent", b"", deadline_s=soon(15))

        async with bus.serve("silent", lambda _: asked.set()), anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            await bus.aclose()
        with pytest.raises(ConnectionLost):
            await bus.publish("x", b"")
        with pytest.raises(ConnectionLost):
            await bus.commit("rollout.r.1", b"")


@pytest.mark.asyncio
async def test_closing_ends_what_would_wait_for_ever(broker_url: str, prefix: str) -> None:
    async def handle(delivery: Delivery) -> None:
        started.set()
        await anyio.sleep_forever()

    async def pull() -> None:
        with pytest.raises(ConnectionLost):
            await bus.pull("task.a.*", consumer="a", slots=1, handle=handle)

    async def take(items: AsyncIterator[object], taken: anyio.Event) -> None:
        await anext(items)
        taken.set()
        with pytest.raises(ConnectionLost):
            await anext(items)

    started, read_one = anyio.Event(), anyio.Event()
    async with connect(broker_url, prefix=prefix) as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a.1", b"")
        await bus.append("runs.1", b"")
        tasks.start_soon(pull)
        tasks.start_soon(take, bus.records("runs.>"), read_one)
        for event in (started, read_one):
            await event.wait()
        await bus.aclose()


@pytest.mark.asyncio
async def test_closing_sends_what_is_buffered(broker_url: str, prefix: str) -> None:
    inbox = Inbox(1000)
    async with connect(broker_url, prefix=prefix) as listener, listener.serve("x", inbox):
        async with connect(broker_url, prefix=prefix) as bus:
            for number in range(1000):
                await bus.publish("x", b"%d" % number)
        assert [int(incoming.payload) for incoming in await inbox.full()] == list(range(1000))


@pytest.mark.asyncio
async def test_headers_count_against_the_limit_and_the_connection_survives(
    broker_url: str, prefix: str
) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        with pytest.raises(PayloadTooLarge, match="of headers"):
            await bus.publish("x", b"", headers={"a": "b" * link_of(bus).max_payload})
        await bus.publish("x", b"small")
        await inbox.full()


@pytest.mark.asyncio
async def test_an_error_of_the_broker_costs_the_connection_but_not_the_client(
    broker_url: str, prefix: str
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        link, inbox, back = link_of(bus), Inbox(), anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        async with bus.serve("x", inbox):
            # It ends the connection with "-ERR 'Maximum Payload Violation'".
            link._socket.write(b"PUB x %d\r\n" % (link.max_payload + 1))
            await back.wait()
            await bus.publish("x", b"after")
            await inbox.full()


@pytest.mark.asyncio
async def test_a_receiver_that_raises_ends_nothing(broker_url: str, prefix: str) -> None:
    inbox = Inbox(2)

    def receive(incoming: Incoming) -> None:
        inbox(incoming)
        raise KeyError(incoming.subject)

    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x.*", receive):
        await bus.publish("x.1", b"")
        await bus.publish("x.2", b"")
        assert [incoming.subject for incoming in await inbox.full()] == ["x.1", "x.2"]


@pytest.mark.asyncio
async def test_a_cancelled_request_leaves_nothing_behind(broker_url: str, prefix: str) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.request("x", b"", deadline_s=soon()))
            incoming = (await inbox.full())[0]
            tasks.cancel_scope.cancel()
        assert not len(link_of(bus)._requests)
        await bus.publish(incoming.reply, b"too late")
        with pytest.raises(DeadlineExceeded):
            await bus.request("x", b"", deadline_s=soon(0.05))
        assert not len(link_of(bus)._requests)


@pytest.mark.asyncio
async def test_a_cancelled_ping_does_not_end_the_reading(broker_url: str, prefix: str) -> None:
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await link_of(bus).settle()
        await link_of(bus).settle()
        await bus.publish("x", b"")
        await inbox.full()


@pytest.mark.asyncio
async def test_a_ping_that_was_never_sent_is_not_sent_after_a_restart(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PENDING_BYTES", 1_000_000)
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:
        link, back = link_of(bus), anyio.Event()
        link.watch(lambda up: back.set() if up else None)
        with frozen(broker.pid):
            with anyio.move_on_after(0.2):
                while True:
                    await bus.publish("x", b"x" * 200_000)
            tasks.start_soon(link.settle)
            await anyio.wait_all_tasks_blocked()
            assert link._outgoing.pings_due == 1
            os.kill(broker.pid, signal.SIGKILL)
        broker.restart()
        await back.wait()
        assert link._outgoing.pings_due == 0
        assert not link._outgoing.pongs


async def _five_thousand_in_order(url: str, prefix: str) -> None:
    inbox = Inbox(5000)
    async with (
        connect(url, prefix=prefix) as receiver,
        connect(url, prefix=prefix) as sender,
        receiver.serve("x.*", inbox),
    ):
        for number in range(5000):
            await sender.publish(f"x.{number}", b"%d" % number * 100, headers={"n": str(number)})
        for number, incoming in enumerate(await inbox.full()):
            assert incoming == Incoming(f"x.{number}", b"%d" % number * 100, "", {"n": str(number)})


@pytest.mark.asyncio
async def test_five_thousand_messages_arrive_in_order(broker_url: str, prefix: str) -> None:
    await _five_thousand_in_order(broker_url, prefix)


def test_five_thousand_messages_arrive_in_order_on_uvloop(broker_url: str, prefix: str) -> None:
    uvloop.run(_five_thousand_in_order(broker_url, prefix))


@pytest.mark.asyncio
async def test_prefixes_do_not_hear_each_other(broker_url: str, prefix: str) -> None:
    async with (
        connect(broker_url, prefix=prefix) as ours,
        connect(broker_url, prefix=f"{prefix}.b") as theirs,
    ):
        async with ours.serve("x", lambda _: None):
            with pytest.raises(NoWorker):
                await theirs.request("x", b"", deadline_s=soon())
        assert await ours.commit("rollout.r.1", b"")
        assert await theirs.commit("rollout.r.1", b"")


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "a.*", ">", "a\r\nPUB x 0", "x" * 2000, ".a"])
def test_subjects_that_are_none_are_refused(subject: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").subject(subject)


@pytest.mark.parametrize("pattern", ["", "a b", "a.>.b", "a>", "*a"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        Names("gym").pattern(pattern)


def test_consumer_names_stay_apart() -> None:
    names = ["a.b", "a_b", "a b", "a=2e=b", "a-b"]
    assert len({Names.consumer(name) for name in names}) == len(names)
    assert Names.consumer("tool_loop-1") == "tool_loop-1"


# ---- requests and a broker that goes away


@pytest.mark.asyncio
async def test_a_request_in_flight_fails_at_once_when_the_broker_dies(broker: Broker) -> None:
    async with connect(broker.url) as bus:
        asked = anyio.Event()

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await bus.request("silent", b"", deadline_s=soon(15))

        async with bus.serve("silent", lambda _: asked.set()), anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            os.kill(broker.pid, signal.SIGKILL)


@pytest.mark.asyncio
async def test_a_request_while_disconnected_waits_for_the_broker_but_not_beyond_its_deadline(
    broker: Broker,
) -> None:
    async with connect(broker.url) as bus, anyio.create_task_group() as tasks:

        def echo(incoming: Incoming) -> None:
            tasks.start_soon(bus.publish, incoming.reply, incoming.payload)

        down = anyio.Event()
        link_of(bus).watch(lambda up: None if up else down.set())
        async with bus.serve("echo", echo):
            broker.stop()
            await down.wait()
            with pytest.raises(DeadlineExceeded):
                await bus.request("echo", b"1", deadline_s=soon(0.1))
            broker.restart()
            assert await bus.request("echo", b"2", deadline_s=soon()) == b"2"


# ---- storing through restarts


@pytest.mark.slow
@pytest.mark.asyncio
async def test_commits_and_tasks_survive_a_broker_that_is_killed_and_restarted(broker: Broker) -> None:
    async with connect(broker.url) as bus:
        committed: list[bool] = []
        some = anyio.Event()

        async def write(number: int) -> None:
            await bus.enqueue(f"task.a.{number}", b"%d" % number)
            committed.append(await bus.commit(f"rollout.r.{number}", b"%d" % number))
            if len(committed) == 200:
                some.set()

        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(write, number)
            await some.wait()
            os.kill(broker.pid, signal.SIGKILL)
            broker.restart()
        assert committed == [True] * 1000
        assert len(await bus.latest("rollout.>")) == 1000
        assert set((await bus.counts("task.>")).values()) == {1}
        assert len(await bus.counts("task.>")) == 1000


def lose_answers(bus: NatsBus, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker acts on the next requests, but their answers are lost."""
    link = link_of(bus)
    ask = link.ask
    left = count

    async def losing(subject: str, payload: bytes, *, within_s: float, header: bytes = b"") -> RawAnswer:
        nonlocal left
        answer = await ask(subject, payload, within_s=within_s, header=header)
        if left:
            left -= 1
            raise ConnectionLost("answer lost")
        return answer

    monkeypatch.setattr(link, "ask", losing)


@pytest.mark.asyncio
async def test_a_commit_knows_its_own_record_when_the_answer_was_lost(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(broker_url, prefix=prefix) as bus, connect(broker_url, prefix=prefix) as other:
        await other.commit("rollout.r.theirs", b"")
        lose_answers(bus, 2, monkeypatch)
        assert await bus.commit("rollout.r.ours", b"")
        lose_answers(bus, 2, monkeypatch)
        assert not await bus.commit("rollout.r.theirs", b"")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_commit_knows_its_own_record_when_the_broker_forgot_the_message_id(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = b'{"name":"%b_ROLLOUTS","subjects":["%b.rollout.>"],"duplicate_window":100000000}' % (
        (prefix.encode(),) * 2
    )
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_ROLLOUTS", config, within_s=5)
    # The repetition comes after the window in which the broker would have recognised it.
    monkeypatch.setattr("gym_runtime.bus.streams.PAUSES_S", (0.5, 0.5))
    async with connect(broker_url, prefix=prefix) as bus:
        lose_answers(bus, 1, monkeypatch)
        assert await bus.commit("rollout.r.1", b"")
        lose_answers(bus, 1, monkeypatch)
        assert not await bus.commit("rollout.r.1", b"")


@pytest.mark.asyncio
async def test_a_lost_answer_stores_a_task_and_a_journal_entry_once(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        lose_answers(bus, 1, monkeypatch)
        await bus.enqueue("task.a.b", b"")
        lose_answers(bus, 1, monkeypatch)
        first = await bus.append("journal.1", b"a")
        second = await bus.append("journal.1", b"b")
        assert (first, second) == (1, 2)
        assert await bus.counts("journal.>") == {"journal.1": 2}
        assert await bus.counts("task.>") == {"task.a.b": 1}


@pytest.mark.asyncio
async def test_of_many_commits_one_wins(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as one, connect(broker_url, prefix=prefix) as two:
        won: list[int] = []

        async def commit(bus: NatsBus, number: int) -> None:
            if await bus.commit("rollout.r.1", b"%d" % number):
                won.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(commit, (one, two)[number % 2], number)
        assert len(won) == 1
        assert [record.payload for record in await one.latest("rollout.>")] == [b"%d" % won[0]]


@pytest.mark.asyncio
async def test_streams_come_back_when_the_broker_lost_its_disk(broker: Broker, tmp_path: Path) -> None:
    async with connect(broker.url) as bus:
        await bus.enqueue("task.a.b", b"")
        broker.stop()
        shutil.rmtree(tmp_path / "broker" / "jetstream")
        broker.restart()
        await bus.enqueue("task.a.c", b"")
        assert await bus.counts("task.>") == {"task.a.c": 1}


@pytest.mark.asyncio
async def test_a_broker_that_stays_away_is_reported(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym_runtime.bus.streams.PATIENCE_S", 0.3)
    async with connect(broker.url) as bus:
        broker.stop()
        with pytest.raises(BrokerError, match="stored or answered nothing"):
            await bus.enqueue("task.a.b", b"")


# ---- records


@pytest.mark.slow
@pytest.mark.asyncio
async def test_records_come_once_and_in_order_through_a_restart(broker: Broker) -> None:
    async with connect(broker.url) as bus, connect(broker.url) as writer:
        for number in range(700):
            await writer.append(f"journal.{number % 7}", b"%d" % number)
        got: list[Record] = []

        async def write_more() -> None:
            for number in range(700, 1000):
                await writer.append(f"journal.{number % 7}", b"%d" % number)

        async with anyio.create_task_group() as tasks:
            async for record in bus.records("journal.*"):
                got.append(record)
                if len(got) == 300:
                    os.kill(broker.pid, signal.SIGKILL)
                    broker.restart()
                    tasks.start_soon(write_more)
                if len(got) == 1000:
                    break
        assert [int(record.payload) for record in got] == list(range(1000))
        assert [record.sequence for record in got] == list(range(1, 1001))


@pytest.mark.asyncio
async def test_a_lost_record_is_read_again(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = stream_reader.Reader._on_message
    arrived = 0

    def losing(
        self: stream_reader.Reader, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> None:
        nonlocal arrived
        arrived += 1
        if arrived % 40 != 0:
            take(self, subject, reply, header, payload)

    monkeypatch.setattr(stream_reader.Reader, "_on_message", losing)
    monkeypatch.setattr(stream_reader, "READ_PAUSE_S", 0.0)
    monkeypatch.setattr(stream_reader, "HEARTBEAT_S", 0.2)
    async with connect(broker_url, prefix=prefix) as bus:
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(bus.append, f"journal.{number}", b"")
        got: list[int] = []
        async for record in bus.records("journal.>"):
            got.append(record.sequence)
            if len(got) == 200:
                break
        assert got == list(range(1, 201))


@pytest.mark.asyncio
async def test_records_go_on_when_their_consumer_vanished(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "READ_PAUSE_S", 0.0)
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("runs.1", b"a")
        records = bus.records("runs.>")
        assert (await anext(records)).payload == b"a"
        link, stream = link_of(bus), f"{prefix}_RUNS"
        names = await link.ask(f"$JS.API.CONSUMER.NAMES.{stream}", b"", within_s=5)
        consumer = names.payload.partition(b'"consumers":["')[2].partition(b'"')[0].decode()
        await link.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", b"", within_s=5)
        await bus.append("runs.2", b"b")
        assert (await anext(records)).payload == b"b"
        await records.aclose()
        await link.settle()
        names = await link.ask(f"$JS.API.CONSUMER.NAMES.{stream}", b"", within_s=5)
        assert b'"total":0' in names.payload


@pytest.mark.asyncio
async def test_records_are_fetched_only_as_fast_as_they_are_read(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        async with anyio.create_task_group() as tasks:
            for number in range(2000):
                tasks.start_soon(bus.append, f"journal.{number}", b"")
        records = bus.records("journal.>")
        await anext(records)
        await link_of(bus).settle()
        names = await link_of(bus).ask(f"$JS.API.CONSUMER.LIST.{prefix}_JOURNAL", b"", within_s=5)
        waiting = int(names.payload.partition(b'"num_pending":')[2].partition(b",")[0])
        assert waiting >= 2000 - 2 * stream_reader.BATCH
        await records.aclose()


@pytest.mark.asyncio
async def test_the_newest_of_many_subjects(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        async with anyio.create_task_group() as tasks:
            for number in range(1500):
                tasks.start_soon(bus.append, f"journal.{number % 700}.x", b"%d" % number)
        newest = await bus.latest("journal.*.x")
        assert len(newest) == 700
        assert [record.sequence for record in newest] == sorted(record.sequence for record in newest)
        assert sum((await bus.counts("journal.>")).values()) == 1500
        assert await bus.latest("journal.none.x") == []
        assert await bus.latest("rollout.>") == []


# ---- the work queue


@pytest.mark.asyncio
async def test_a_killed_broker_in_the_middle_of_the_work_loses_no_task(broker: Broker) -> None:
    async with connect(broker.url) as bus, connect(broker.url) as client:
        done: set[str] = set()
        half, all_done = anyio.Event(), anyio.Event()

        async def handle(delivery: Delivery) -> None:
            done.add(delivery.subject)
            await delivery.ack()
            if len(done) == 150:
                half.set()
            if len(done) == 300:
                all_done.set()

        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(client.enqueue, f"task.a.{number}", b"")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: bus.pull("task.a.*", consumer="a", slots=8, handle=handle, ack_wait_s=1.0)
            )
            await half.wait()
            os.kill(broker.pid, signal.SIGKILL)
            broker.restart()
            await all_done.wait()
            await until_empty(client)
            tasks.cancel_scope.cancel()
        assert await client.depth("a") == QueueDepth(waiting=0, in_flight=0)


@pytest.mark.asyncio
async def test_never_more_than_the_slots_and_all_of_them(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        busy = most = done = 0
        finished = anyio.Event()

        async def handle(delivery: Delivery) -> None:
            nonlocal busy, most, done
            busy += 1
            most = max(most, busy)
            await anyio.sleep(0.002)
            busy -= 1
            done += 1
            await delivery.ack()
            if done == 200:
                finished.set()

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(bus.enqueue, f"task.a.{number}", b"")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.pull("task.>", consumer="a.b", slots=5, handle=handle))
            await finished.wait()
            tasks.cancel_scope.cancel()
        assert most == 5
        assert await bus.depth("a.b") == QueueDepth(waiting=0, in_flight=0)


@pytest.mark.asyncio
async def test_cancelling_gives_back_at_once_what_is_unfinished(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus, connect(broker_url, prefix=prefix) as other:
        for number in range(6):
            await bus.enqueue(f"task.a.{number}", b"")
        started = Inbox(4)

        async def stuck(delivery: Delivery) -> None:
            started(delivery.deliveries)
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.pull("task.a.*", consumer="a", slots=4, handle=stuck, ack_wait_s=30))
            assert await started.full() == [1, 1, 1, 1]
            tasks.cancel_scope.cancel()
        redelivered = Inbox(6)

        async def handle(delivery: Delivery) -> None:
            await delivery.ack()
            redelivered(delivery.deliveries)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: other.pull("task.a.*", consumer="a", slots=4, handle=handle, ack_wait_s=30)
            )
            assert sorted(await redelivered.full()) == [1, 1, 2, 2, 2, 2]
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_stopping_finishes_what_is_in_flight_and_takes_nothing_new(
    broker_url: str, prefix: str
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        for number in range(4):
            await bus.enqueue(f"task.a.{number}", b"")
        stop, go_on, started = anyio.Event(), anyio.Event(), Inbox(2)

        async def handle(delivery: Delivery) -> None:
            started(delivery)
            await go_on.wait()
            await delivery.ack()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.pull("task.a.*", consumer="a", slots=2, handle=handle, stop=stop))
            await started.full()
            stop.set()
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert len(started.got) == 2
        assert await bus.depth("a") == QueueDepth(waiting=2, in_flight=0)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_work_that_takes_longer_than_the_wait_is_kept_alive(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        for number in range(3):
            await bus.enqueue(f"task.a.{number}", b"")
        done = Inbox(3)

        async def handle(delivery: Delivery) -> None:
            await anyio.sleep(1.0)
            await delivery.ack()
            done(delivery.deliveries)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: bus.pull("task.a.*", consumer="a", slots=8, handle=handle, ack_wait_s=0.3)
            )
            assert await done.full() == [1, 1, 1]
            tasks.cancel_scope.cancel()
        assert await bus.depth("a") == QueueDepth(waiting=0, in_flight=0)


@pytest.mark.asyncio
async def test_a_handler_that_raises_or_forgets_gives_the_task_back(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.enqueue("task.a.1", b"x", headers={"trace": "1"})
        seen = Inbox(4)

        async def handle(delivery: Delivery) -> None:
            assert delivery.headers == {"trace": "1"}
            seen(delivery.deliveries)
            match delivery.deliveries:
                case 1:
                    raise KeyError
                case 2:
                    return
                case 3:
                    await delivery.release(0.05)
                case _:
                    await delivery.ack()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=30)
            )
            assert await seen.full() == [1, 2, 3, 4]
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_a_deleted_consumer_is_made_anew(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        done = Inbox(2)
        first = anyio.Event()

        async def handle(delivery: Delivery) -> None:
            await delivery.ack()
            done(delivery.subject)
            first.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.pull("task.a.*", consumer="a", slots=3, handle=handle))
            await bus.enqueue("task.a.1", b"")
            await first.wait()
            await until_empty(bus)
            await link_of(bus).ask(f"$JS.API.CONSUMER.DELETE.{prefix}_TASKS.a", b"", within_s=5)
            await bus.enqueue("task.a.2", b"")
            assert await done.full() == ["task.a.1", "task.a.2"]
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_overlapping_patterns_are_refused(broker_url: str, prefix: str) -> None:
    ready = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        await delivery.ack()
        ready.set()

    async with connect(broker_url, prefix=prefix) as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a.1", b"")
        tasks.start_soon(lambda: bus.pull("task.a.*", consumer="a", slots=1, handle=handle))
        await ready.wait()
        with pytest.raises(BrokerError, match="not unique"):
            await bus.pull("task.>", consumer="b", slots=1, handle=handle)
        tasks.cancel_scope.cancel()


WORKER = """
import sys, anyio
from gym_runtime.bus.nats import connect

async def main(url, prefix):
    async with connect(url, prefix=prefix) as bus:
        async def handle(delivery):
            print("started", flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await delivery.ack()
            print("acked", flush=True)
        await bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=0.5)

anyio.run(main, *sys.argv[1:])
"""


def start_worker(url: str, prefix: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), url, prefix]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_task_of_a_killed_or_frozen_worker_goes_to_another(
    broker_url: str, prefix: str, how: signal.Signals
) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.enqueue("task.a.1", b"")
        process = start_worker(broker_url, prefix)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "started\n"
            process.send_signal(how)
            taken, go_on, done = anyio.Event(), anyio.Event(), Inbox()

            async def handle(delivery: Delivery) -> None:
                taken.set()
                await go_on.wait()
                await delivery.ack()
                done(delivery.deliveries)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(
                    lambda: bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=0.5)
                )
                await taken.wait()
                if how is signal.SIGSTOP:
                    # The first worker wakes up and acks late; that is no harm.
                    process.send_signal(signal.SIGCONT)
                    process.stdin.write("\n")
                    process.stdin.flush()
                    assert await anyio.to_thread.run_sync(process.stdout.readline) == "acked\n"
                go_on.set()
                assert await done.full() == [2]
                await until_empty(bus)
                tasks.cancel_scope.cancel()
            assert await bus.depth("a") == QueueDepth(waiting=0, in_flight=0)
        finally:
            process.kill()
            process.communicate()


# ---- large payloads


@pytest.mark.asyncio
async def test_large_payloads_travel_by_reference_everywhere(broker_url: str, prefix: str) -> None:
    large = os.urandom(INLINE_BYTES + 1)
    async with connect(broker_url, prefix=prefix) as bus, connect(broker_url, prefix=prefix) as other:
        async with anyio.create_task_group() as tasks:

            def reverse(incoming: Incoming) -> None:
                tasks.start_soon(other.publish, incoming.reply, incoming.payload[::-1])

            async with other.serve("reverse", reverse):
                assert await bus.request("reverse", large, deadline_s=soon()) == large[::-1]
        inbox = Inbox()
        async with other.serve("signal.*", inbox):
            await bus.publish("signal.1", large, headers={"a": "b"})
            assert await inbox.full() == [Incoming("signal.1", large, "", {"a": "b"})]
        await bus.enqueue("task.a.1", large)
        done = Inbox()

        async def handle(delivery: Delivery) -> None:
            await delivery.ack()
            done(delivery.payload)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.pull("task.>", consumer="a", slots=1, handle=handle))
            assert await done.full() == [large]
            tasks.cancel_scope.cancel()
        assert await bus.commit("rollout.r.1", large)
        await bus.append("journal.1", large)
        assert (await anext(other.records("rollout.>"))).payload == large
        assert [record.payload for record in await other.latest("journal.*")] == [large]
        assert [record.payload for record in await other.latest("journal.1")] == [large]


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "count"), [(INLINE_BYTES, 256), (SMALL_INLINE_BYTES, 400)])
async def test_a_slow_reader_of_many_large_messages_is_not_disconnected(
    broker: Broker, start_server: StartServer, tmp_path: Path, prefix: str, size: int, count: int
) -> None:
    # The broker would have 100 MB or more for the worker, which reads 5 ms for each message.
    small = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    url = broker.url if size == INLINE_BYTES else start_server(small)[0]
    changes: list[bool] = []
    async with connect(url, prefix=prefix) as bus, connect(url, prefix=prefix) as other:
        link_of(other).watch(changes.append)
        async with anyio.create_task_group() as answers:

            def read(incoming: Incoming) -> None:
                time.sleep(0.005)
                answers.start_soon(other.publish, incoming.reply, b"%d" % len(incoming.payload))

            async def ask() -> None:
                assert await bus.request("x", b"x" * size, deadline_s=soon(60)) == b"%d" % size

            async with other.serve("x", read), anyio.create_task_group() as requests:
                for _ in range(count):
                    requests.start_soon(ask)
        assert changes == []


@pytest.mark.asyncio
async def test_a_blob_of_many_chunks_is_stored_once_for_each_run(broker_url: str, prefix: str) -> None:
    large = os.urandom(3 * blobs.CHUNK_BYTES + 5)

    async def stored() -> list[str]:
        return sorted(await bus._streams.counts(f"{prefix}.blob.>"))

    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("journal.r1.1", large)
        first = await stored()
        assert len(first) == 5
        assert {subject.rpartition(".")[0].split(".")[1:4] == ["blob", "run", "r1"] for subject in first}
        await bus.append("journal.r1.2", large)
        await bus.publish("x", large, run="r1")
        assert await stored() == first
        # A message that may live longer, or of another run, has a blob of its own.
        await bus.enqueue("task.agent.environment.r1", large)
        await bus.append("journal.r2.1", large)
        assert len(await stored()) == 15
        # A run's blobs are forgotten together, and stored again where they are needed again.
        assert await bus.forget(blobs.of_run("r1")) == 10
        assert [subject.split(".")[3] for subject in await stored()] == ["r2"] * 5
        await bus.append("journal.r1.3", large)
        assert [record.payload for record in await bus.latest("journal.r1.3")] == [large]


@pytest.mark.asyncio
async def test_blobs_of_no_run_expire_soon(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "SIGNAL_LIFE_S", 1)
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.publish("x", os.urandom(INLINE_BYTES + 1))
        stored = await bus._streams.counts(f"{prefix}.blob.>")
        assert {subject.split(".")[1:3] == ["blob", "brief"] for subject in stored} == {True}
        with anyio.fail_after(10):
            while await bus._streams.counts(f"{prefix}.blob.>"):
                await anyio.sleep(0.05)


@pytest.mark.asyncio
async def test_what_is_stored_of_a_large_payload_says_nothing_of_it(broker_url: str, prefix: str) -> None:
    large = b"the same sentence again. " * 50_000
    async with connect(broker_url, prefix=prefix) as bus, connect(broker_url, prefix=prefix) as other:
        await bus.append("journal.r1.1", large)
        chunks = [
            kept.payload
            for subject in await bus._streams.counts(f"{prefix}.blob.>")
            if (kept := await bus._streams.direct(subject)) is not None
        ]
        assert sum(map(len, chunks)) >= len(large)
        assert not any(b"sentence" in chunk for chunk in chunks)
        assert all(len(zlib.compress(chunk)) >= len(chunk) for chunk in chunks)
        assert [record.payload for record in await other.latest("journal.r1.1")] == [large]


@pytest.mark.asyncio
async def test_a_payload_that_looks_like_a_reference_is_none(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("journal.1", blobs.MAGIC + b"{}")
        assert [record.payload for record in await bus.latest("journal.1")] == [blobs.MAGIC + b"{}"]


@pytest.mark.asyncio
async def test_a_chunk_cannot_be_replaced(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_runtime.bus.streams.PATIENCE_S", 0.1)
    large = os.urandom(INLINE_BYTES + 1)
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("journal.r1.1", large)
        for subject in await bus._streams.counts(f"{prefix}.blob.>"):
            for headers in ({}, {"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}, {"Nats-TTL": "1"}):
                with pytest.raises(BrokerError, match="refuses"):
                    await bus._streams.store(subject, b"y", headers)
        assert [record.payload for record in await bus.latest("journal.r1.1")] == [large]


@pytest.mark.asyncio
async def test_a_chunk_that_is_not_what_was_stored_is_named_and_never_used(
    broker_url: str, prefix: str
) -> None:
    large = os.urandom(2 * blobs.CHUNK_BYTES + 5)
    async with connect(broker_url, prefix=prefix) as bus, linked(broker_url) as operator:
        await bus.append("journal.r1.1", large)
        chunks = [
            subject
            for subject in sorted(await bus._streams.counts(f"{prefix}.blob.>"))
            if not subject.endswith(".whole")
        ]
        kept = [await bus._streams.direct(subject) for subject in chunks]
        first, second, third = (one.payload for one in kept if one is not None)
        flipped = bytes([second[0] ^ 1]) + second[1:]
        # As an operator may: the stream itself is changed.
        for other in (flipped, first, third, second[:-1], second + b"x", b""):
            await bus._streams.purge(chunks[1])
            await operator.ask(chunks[1], other, within_s=5)
            with pytest.raises(BrokerError, match=r"blob blob\.run\.r1\.\w+\.1 is damaged"):
                await bus.latest("journal.r1.1")
        await bus._streams.purge(chunks[1])
        with pytest.raises(BrokerError, match=r"blob\.run\.r1\.\w+\.1 is gone"):
            await bus.latest("journal.r1.1")
        await operator.ask(chunks[1], second, within_s=5)
        assert [record.payload for record in await bus.latest("journal.r1.1")] == [large]


@pytest.mark.asyncio
async def test_the_stream_of_blobs_of_an_older_version_is_brought_up_to_date(
    broker_url: str, prefix: str
) -> None:
    config = {"name": f"{prefix}_BLOBS", "subjects": [f"{prefix}.blob.>"], "discard": "old"}
    async with linked(broker_url) as link:
        await link.ask(f"$JS.API.STREAM.CREATE.{prefix}_BLOBS", json.dumps(config).encode(), within_s=5)
        async with connect(broker_url, prefix=prefix):
            info = await link.ask(f"$JS.API.STREAM.INFO.{prefix}_BLOBS", b"", within_s=5)
    now = json.loads(info.payload)["config"]
    assert (now["discard"], now["discard_new_per_subject"], now["max_msgs_per_subject"]) == ("new", True, 1)


@pytest.mark.asyncio
async def test_a_reference_that_is_none_is_an_error(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:

        def answer(incoming: Incoming) -> None:
            link_of(bus).post(incoming.reply, blobs.MAGIC + incoming.payload)

        async with bus.serve("x", answer):
            for damaged in (b"", b'{"id":"../x","key":"","size_bytes":1,"chunk_bytes":1}'):
                with pytest.raises(BrokerError, match="reference"):
                    await bus.request("x", damaged, deadline_s=soon())


@pytest.mark.asyncio
async def test_a_payload_beyond_the_limit_is_refused(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BLOB_BYTES == 1 << 30
    monkeypatch.setattr(blobs, "BLOB_BYTES", 2_000_000)
    async with connect(broker_url, prefix=prefix) as bus:
        with pytest.raises(PayloadTooLarge, match="the limit is 2000000"):
            await bus.enqueue("task.a.1", b"x" * 2_000_001)


@pytest.mark.asyncio
async def test_the_deadline_holds_while_a_large_payload_is_on_its_way(broker: Broker) -> None:
    async with connect(broker.url) as bus:
        with frozen(broker.pid), pytest.raises(DeadlineExceeded):
            await bus.request("x", b"x" * (INLINE_BYTES + 1), deadline_s=soon(0.2))


def test_the_client_module_is_the_bus() -> None:
    assert client.NatsBus is NatsBus
