"""Storing through restarts and lost answers; records."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime.bus import stream_reader, streams
from gym_runtime.bus.interface import Headers, Record
from gym_runtime.bus.jetstream_answers import Answer
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.bus.receiving import RawAnswer
from gym_runtime.bus.wire import NO_HEADERS
from gym_runtime.errors import BrokerError, ConnectionLost
from gym_runtime.retrying import Pauses
from gym_runtime.system.private_broker import Broker
from runtime.bus.conftest import StartServer, linked
from runtime.bus.nats.links import link_of


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

    async def losing(
        subject: str, payload: bytes, *, within_s: float, headers: Headers = NO_HEADERS, **more: Any
    ) -> RawAnswer:
        nonlocal left
        answer = await ask(subject, payload, within_s=within_s, headers=headers, **more)
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
    monkeypatch.setattr("gym_runtime.bus.streams.PAUSES", Pauses(0.5, 0.5))
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
async def test_no_more_is_being_stored_than_the_broker_answers_in_time(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STORES_IN_FLIGHT", 3)
    async with connect(broker_url, prefix=prefix) as bus:
        link = link_of(bus)
        ask, now, most = link.ask, 0, 0

        async def counting(
            subject: str, payload: bytes, *, within_s: float, headers: Headers = NO_HEADERS, **more: Any
        ) -> RawAnswer:
            nonlocal now, most
            now += 1
            most = max(most, now)
            try:
                return await ask(subject, payload, within_s=within_s, headers=headers, **more)
            finally:
                now -= 1

        monkeypatch.setattr(link, "ask", counting)
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(bus.append, f"journal.{number}", b"")
        assert most == 3


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


@pytest.mark.asyncio
async def test_a_reader_says_why_its_stream_cannot_be_created(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_runtime.bus.streams.PATIENCE_S", 0.3)
    user = 'jetstream: {max_streams: 2}, users: [{user: "gym", password: "s"}]'
    url, _ = start_server(f'jetstream {{ store_dir: "{tmp_path / "js"}" }}\naccounts {{ A {{ {user} }} }}')
    async with connect(url.replace("//", "//gym:s@"), role="agent") as bus:
        with pytest.raises(BrokerError, match=r"refuses the consumer .*: maximum number of streams reached"):
            await anext(aiter(bus.records("journal.*")))


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
        self: stream_reader.Reader, subject: str, reply: str, headers: Headers, payload: bytes
    ) -> None:
        nonlocal arrived
        arrived += 1
        if arrived % 40 != 0:
            take(self, subject, reply, headers, payload)

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


ELECTION = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'


@pytest.mark.asyncio
async def test_an_election_of_a_leader_is_waited_out(
    broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster answers so while it elects; here each question about a stream is answered so once."""
    async with connect(broker_url, prefix="election") as bus:
        assert await bus.commit("rollout.r.1", b"record")
        link = link_of(bus)
        ask, told = link.ask, set[str]()

        async def electing(
            subject: str, payload: bytes, *, within_s: float, headers: Headers = NO_HEADERS, **more: Any
        ) -> RawAnswer:
            answer = await ask(subject, payload, within_s=within_s, headers=headers, **more)
            verb = ".".join(subject.split(".")[2:4])
            if subject.startswith("$JS.API.") and verb not in told:
                told.add(verb)
                return RawAnswer(NO_HEADERS, payload=ELECTION)
            return answer

        monkeypatch.setattr(link, "ask", electing)
        async for record in bus.records("rollout.>"):
            assert record.payload == b"record"
            break
        assert await bus.counts("rollout.>") == {"rollout.r.1": 1}
        await bus.forget("rollout.>")
        assert await bus.counts("rollout.>") == {}
        assert told >= {"CONSUMER.CREATE", "STREAM.INFO", "STREAM.PURGE"}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_hundreds_that_wait_for_missing_streams_do_not_each_ask_for_them(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = 'publish: { allow: ">", deny: "$JS.API.STREAM.CREATE.>" }'
    users = f"users: [{{ user: agent, password: x, permissions: {{ {denied} }} }}]"
    url, _ = start_server(f'jetstream {{ store_dir: "{tmp_path / "store"}" }}\nauthorization {{ {users} }}')
    url = url.replace("nats://", "nats://agent:x@")
    asked: list[str] = []
    once = streams.StreamSetup._once

    async def counted(setup: streams.StreamSetup, verb: str, body: dict[str, Any] | None = None) -> Answer:
        asked.append(verb)
        return await once(setup, verb, body)

    monkeypatch.setattr(streams.StreamSetup, "_once", counted)
    tried = 0
    async with connect(url, role="agent") as bus:
        ask = link_of(bus).ask

        async def tries(subject: str, payload: bytes, **more: Any) -> RawAnswer:
            nonlocal tried
            tried += subject.startswith("gym.journal.")
            return await ask(subject, payload, **more)

        monkeypatch.setattr(link_of(bus), "ask", tries)
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(bus.append, f"journal.{number}", b"")
            with anyio.fail_after(20):
                while tried < 1000:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert asked == ["INFO", "STREAM.CREATE.gym_TASKS"]
