"""Large payloads."""

from __future__ import annotations

import json
import os
import re
import zlib

import anyio
import anyio.lowlevel
import pytest
from freezing import frozen
from gym_runtime.bus import blobs
from gym_runtime.bus.blobs import SMALL_INLINE_BYTES
from gym_runtime.bus.interface import BLOB_BYTES, Delivery, Incoming
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded, PayloadTooLarge
from gym_runtime.messages import stored_records
from gym_runtime.rpc.members import all_workers
from gym_runtime.system.private_broker import Broker
from gym_testing.background import settled
from runtime.bus.conftest import linked
from runtime.bus.nats.links import Inbox, link_of, soon

pytestmark = pytest.mark.usefixtures("little_inline")


@pytest.mark.asyncio
async def test_large_payloads_travel_by_reference_everywhere(broker_url: str, prefix: str) -> None:
    large = os.urandom(SMALL_INLINE_BYTES + 1)
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


@pytest.mark.asyncio
async def test_blobs_of_many_chunks_are_part_of_their_run(broker_url: str, prefix: str) -> None:
    large = os.urandom(3 * blobs.CHUNK_BYTES + 5)

    async def stored() -> list[str]:
        return sorted(await bus._streams.counts("blob.>"))

    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("journal.r1.1", large)
        first = await stored()
        assert len(first) == 4
        assert {subject.rpartition(".")[0].split(".")[:3] == ["blob", "run", "r1"] for subject in first} == {
            True
        }
        await bus.publish("x", large, run="r1")
        await bus.enqueue("task.agent.environment.r1", large)
        await bus.append("journal.r2.1", large)
        # A run's blobs are forgotten together.
        assert await bus.forget(blobs.of_run("r1")) == 12
        assert [subject.split(".")[2] for subject in await stored()] == ["r2"] * 4
        assert [record.payload for record in await bus.latest("journal.r2.1")] == [large]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_blobs_of_no_run_expire_soon(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "SIGNAL_LIFE_S", 1)
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.publish("x", os.urandom(SMALL_INLINE_BYTES + 1))
        stored = await bus._streams.counts("blob.>")
        assert {subject.split(".")[:2] == ["blob", "brief"] for subject in stored} == {True}
        with anyio.fail_after(15):
            while await bus._streams.counts("blob.>"):
                await anyio.sleep(0.05)


@pytest.mark.asyncio
async def test_what_is_stored_of_a_large_payload_says_nothing_of_it(broker_url: str, prefix: str) -> None:
    large = b"the same sentence again. " * 50_000
    async with connect(broker_url, prefix=prefix) as bus, connect(broker_url, prefix=prefix) as other:
        await bus.append("journal.r1.1", large)
        chunks = [
            kept.payload
            for subject in await bus._streams.counts("blob.>")
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
@pytest.mark.slow
async def test_a_chunk_cannot_be_replaced(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym_runtime.bus.streams.PATIENCE_S", 0.1)
    large = os.urandom(SMALL_INLINE_BYTES + 1)
    async with connect(broker_url, prefix=prefix) as bus:
        await bus.append("journal.r1.1", large)
        for subject in await bus._streams.counts("blob.>"):
            for headers in ({}, {"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}, {"Nats-TTL": "1"}):
                with pytest.raises(BrokerError, match="refuses"):
                    await bus._streams.store(subject, b"y", headers)
        assert [record.payload for record in await bus.latest("journal.r1.1")] == [large]


async def read_as_stored(bus: NatsBus, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference itself comes, which no reader takes for its record, and the log names the chunk."""
    for records in (await bus.latest("journal.r1.1"), await bus.latest("journal.>")):
        assert [record.payload.startswith(blobs.MAGIC) for record in records] == [True]
    async for record in bus.records("journal.r1.1"):
        assert record.payload.startswith(blobs.MAGIC)
        break
    said = "".join(capsys.readouterr())
    # Once, however often it is read.
    assert len(re.findall(r"blob blob\.run\.r1\.\w+\.1 is damaged", said)) == 1


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_chunk_that_is_not_what_was_stored_is_named_and_never_used(
    broker_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    large = os.urandom(2 * blobs.CHUNK_BYTES + 5)
    async with connect(broker_url, prefix=prefix) as bus, linked(broker_url) as operator:
        await bus.append("journal.r1.1", large)
        chunks = sorted(await bus._streams.counts("blob.>"))
        kept = [await bus._streams.direct(subject) for subject in chunks]
        first, second, third = (one.payload for one in kept if one is not None)
        flipped = bytes([second[0] ^ 1]) + second[1:]
        # As an operator may: the stream itself is changed.
        for other in (flipped, first, third, second[:-1], second + b"x", b""):
            await bus._streams.purge(chunks[1])
            await operator.ask(f"{prefix}.{chunks[1]}", other, within_s=5)
            stored_records._named.clear()
            await read_as_stored(bus, capsys)
        await bus._streams.purge(chunks[1])
        with pytest.raises(BrokerError, match=r"blob\.run\.r1\.\w+\.1 is gone"):
            await bus.latest("journal.r1.1")
        await operator.ask(f"{prefix}.{chunks[1]}", second, within_s=5)
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


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_answer_that_is_a_damaged_reference_is_lost(broker_url: str, prefix: str) -> None:
    async with connect(broker_url, prefix=prefix) as bus:

        def answer(incoming: Incoming) -> None:
            link_of(bus).post(incoming.reply, blobs.MAGIC + incoming.payload)

        async with bus.serve("x", answer):
            whole = {"id": "0" * 32, "key": "A" * 43 + "=", "size_bytes": 1, "chunk_bytes": 1}
            no_subject = json.dumps({**whole, "run": "r1\n"}).encode()
            for damaged in (b"", b'{"id":"../x","key":"","size_bytes":1,"chunk_bytes":1}', no_subject):
                # As for an answer that was lost, so that callers ask again.
                with pytest.raises(ConnectionLost, match="reference"):
                    await bus.request("x", damaged, deadline_s=soon())
        async with bus.serve("members.*", answer):
            assert await all_workers(bus) == []


@pytest.mark.asyncio
async def test_a_task_whose_blob_is_gone_is_named_once(
    broker_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not the seconds between the real tries.
    monkeypatch.setattr("gym_runtime.bus.puller.RELEASE_S", (0.0, 0.01, 0.01, 0.01))
    monkeypatch.setattr(blobs, "REPLICA_PAUSES_S", ())
    tried = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        await delivery.ack()

    async with connect(broker_url, prefix=prefix) as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a.1", os.urandom(SMALL_INLINE_BYTES + 1))
        await bus._streams.purge("blob.>")
        fetch, tries = bus._blobs.fetch, 0

        async def counted(payload: bytes) -> bytes:
            nonlocal tries
            tries += 1
            if tries == 7:
                tried.set()
            return await fetch(payload)

        monkeypatch.setattr(bus._blobs, "fetch", counted)
        tasks.start_soon(lambda: bus.pull("task.>", consumer="a", slots=1, handle=handle))
        with anyio.fail_after(15):
            await tried.wait()
        tasks.cancel_scope.cancel()
    said = "".join(capsys.readouterr())
    assert len(re.findall(r"warning .*a task is given back.* is gone", said)) == 1


@pytest.mark.asyncio
async def test_messages_that_are_damaged_references_are_one_line(
    broker_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_records._named.clear()
    inbox = Inbox()
    async with connect(broker_url, prefix=prefix) as bus, bus.serve("x", inbox):
        for _ in range(20):
            link_of(bus).post(f"{prefix}.x", blobs.MAGIC + b"junk")
        await bus.publish("x", b"sound")
        assert await inbox.full() == [Incoming("x", b"sound")]
        # They are read apart from small messages, eight at a time.
        await settled(lambda: not bus._fetching.statistics().tasks_waiting)
        await anyio.lowlevel.checkpoint()
    said = "".join(capsys.readouterr())
    assert "receive failed" not in said
    assert said.count("a reference to a blob is damaged") == 1


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
            await bus.request("x", b"x" * (SMALL_INLINE_BYTES + 1), deadline_s=soon(0.2))
