"""Commit once, and ordered consumption."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import pytest
from gym_runtime.bus.interface import (
    Bus,
    Record,
)

if TYPE_CHECKING:
    from runtime.bus.conftest import Fragile, System
from runtime.bus.contract.traffic import SOON_S, Mailbox, background, take

pytestmark = pytest.mark.anyio


async def test_only_the_first_commit_is_stored(bus: Bus, other: Bus, system: System) -> None:
    assert await bus.commit("rollout.run1.0.0", b"first") is True
    assert await bus.commit("rollout.run1.0.0", b"second") is False
    assert await other.commit("rollout.run1.0.0", b"first") is False
    assert await other.commit("rollout.run1.0.1", b"other") is True
    await system.wait_days(3)
    assert await other.commit("rollout.run1.0.0", b"late") is False
    stored = await bus.latest("rollout.run1.>")
    assert [(record.subject, record.payload) for record in stored] == [
        ("rollout.run1.0.0", b"first"),
        ("rollout.run1.0.1", b"other"),
    ]


async def test_one_of_a_hundred_concurrent_commits_is_stored(system: System) -> None:
    buses = [await system.connect() for _ in range(3)]
    results: dict[int, bool] = {}

    async def one(number: int) -> None:
        results[number] = await buses[number % 3].commit("rollout.run.0.0", b"%d" % number)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(one, number)
    (winner,) = [number for number, stored in results.items() if stored]
    assert len(results) == 100
    (record,) = await buses[0].latest("rollout.run.0.0")
    assert int(record.payload) == winner


async def test_what_is_stored_during_a_disconnection_is_stored_once(bus: Bus, fragile: Fragile) -> None:
    committed: list[bool] = []

    async def commit() -> None:
        committed.append(await fragile.bus.commit("rollout.run.0.0", b"x"))

    fragile.cut()
    with anyio.fail_after(SOON_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            tasks.start_soon(fragile.bus.enqueue, "task.a.b", b"x")
            tasks.start_soon(fragile.bus.append, "journal.run.0.0", b"x")
            await anyio.sleep(0.05)
            fragile.mend()
    assert committed == [True]
    assert await bus.commit("rollout.run.0.0", b"x") is False
    assert await bus.counts("task.>") == {"task.a.b": 1}
    assert await bus.counts("journal.>") == {"journal.run.0.0": 1}


async def test_append_only_after_the_record_that_is_expected(bus: Bus, other: Bus) -> None:
    assert await bus.append("journal.r.0.0", b"no", expect=7) is None
    first = await bus.append("journal.r.0.0", b"1", expect=0)
    assert first is not None
    assert await other.append("journal.r.0.0", b"no", expect=0) is None
    assert await bus.append("journal.r.0.1", b"another subject", expect=0) is not None
    second = await other.append("journal.r.0.0", b"2", expect=first)
    assert await bus.append("journal.r.0.0", b"no", expect=first) is None
    third = await bus.append("journal.r.0.0", b"3")
    assert [record.payload for record in await take(bus, "journal.r.0.0", 3)] == [b"1", b"2", b"3"]
    assert [record.sequence for record in await take(bus, "journal.r.0.0", 3)] == [first, second, third]
    await bus.forget("journal.r.0.0")
    assert await bus.append("journal.r.0.0", b"anew", expect=0) is not None


async def test_one_of_many_concurrent_appends_after_the_same_record_is_stored(bus: Bus, other: Bus) -> None:
    results: list[int | None] = []

    async def one(number: int) -> None:
        writer = bus if number % 2 else other
        results.append(await writer.append("journal.r.0.0", b"%d" % number, expect=0))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    stored = [sequence for sequence in results if sequence is not None]
    assert len(stored) == 1
    assert [record.sequence for record in await bus.latest("journal.r.0.0")] == stored


async def test_records_yields_the_past_then_what_comes(bus: Bus, other: Bus) -> None:
    for number in range(3):
        await bus.append("journal.r.0.0", b"%d" % number)
    seen: Mailbox[Record] = Mailbox()

    async def follow() -> None:
        async with aclosing(other.records("journal.r.0.0")) as records:
            async for record in records:
                seen.put(record)

    async with background(follow):
        await seen.until(3)
        sequences = [await bus.append("journal.r.0.0", b"%d" % number) for number in range(3, 6)]
        found = await seen.until(6)
    assert [int(record.payload) for record in found] == list(range(6))
    assert [record.sequence for record in found[3:]] == sequences
    assert sorted({record.sequence for record in found}) == [record.sequence for record in found]


async def test_records_of_a_pattern_after_a_sequence(bus: Bus) -> None:
    sequences: list[int] = []
    for number in range(10):
        await bus.append("journal.other.0.0", b"no")
        sequences.append(await bus.append(f"journal.run.{number % 3}.0", b"%d" % number))
    everything = await take(bus, "journal.run.>", 10)
    assert [int(record.payload) for record in everything] == list(range(10))
    assert [record.subject for record in everything[:3]] == [
        "journal.run.0.0",
        "journal.run.1.0",
        "journal.run.2.0",
    ]
    rest = await take(bus, "journal.run.>", 4, after=sequences[5])
    assert [int(record.payload) for record in rest] == [6, 7, 8, 9]
    one = await take(bus, "journal.run.1.*", 3)
    assert [int(record.payload) for record in one] == [1, 4, 7]


async def test_five_thousand_records_reach_a_slow_reader_once_and_in_order(bus: Bus, other: Bus) -> None:
    count = 5000
    stored: dict[int, int] = {}

    async def store(numbers: range) -> None:
        for number in numbers:
            stored[await bus.append("journal.r.0.0", b"%d" % number)] = number

    found: list[Record] = []
    async with anyio.create_task_group() as tasks:
        for start in range(50):
            tasks.start_soon(store, range(start, count, 50))
        async with aclosing(other.records("journal.r.>")) as records:
            async for record in records:
                found.append(record)
                if len(found) == count:
                    break
                if len(found) % 100 == 0:
                    await anyio.sleep(0.005)
    assert [record.sequence for record in found] == sorted(stored)
    assert [int(record.payload) for record in found] == [stored[sequence] for sequence in sorted(stored)]


async def test_records_go_on_after_a_reconnection(bus: Bus, fragile: Fragile) -> None:
    seen: Mailbox[Record] = Mailbox()

    async def follow() -> None:
        async with aclosing(fragile.bus.records("rollout.run.>")) as records:
            async for record in records:
                seen.put(record)

    async with background(follow):
        for number in range(30):
            await bus.commit(f"rollout.run.{number}.0", b"%d" % number)
            if number % 10 == 5:
                await seen.until(number)
                fragile.cut()
            elif number % 10 == 9:
                fragile.mend()
        found = await seen.until(30)
    assert [int(record.payload) for record in found] == list(range(30))


async def test_every_reader_sees_everything(bus: Bus, other: Bus) -> None:
    for number in range(10):
        await bus.commit(f"rollout.run.{number}.0", b"%d" % number)
    for reader in (bus, other, bus):
        assert [int(record.payload) for record in await take(reader, "rollout.run.>", 10)] == list(range(10))


async def test_latest_is_the_newest_record_of_each_subject_in_stored_order(bus: Bus) -> None:
    assert await bus.latest("journal.>") == []
    assert await bus.latest("journal.r.0.0") == []
    for number in range(9):
        await bus.append(f"journal.r.{number % 3}.0", b"%d" % number)
    await bus.append("journal.r.0.0", b"9")
    assert [(record.subject, record.payload) for record in await bus.latest("journal.>")] == [
        ("journal.r.1.0", b"7"),
        ("journal.r.2.0", b"8"),
        ("journal.r.0.0", b"9"),
    ]
    (one,) = await bus.latest("journal.r.1.0")
    assert one.payload == b"7"


async def test_latest_has_a_subject_whose_record_is_replaced_meanwhile(bus: Bus, other: Bus) -> None:
    await bus.append("runs.one", b"first")

    async def replace() -> None:
        while True:
            await other.append("runs.one", b"newer")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(replace)
        for _ in range(100):
            assert [record.subject for record in await bus.latest("runs.*")] == ["runs.one"]
        tasks.cancel_scope.cancel()


async def test_latest_of_more_subjects_than_fit_in_one_answer(bus: Bus) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(700):
            tasks.start_soon(bus.append, f"runs.run{number}", b"%d" % number)
    found = await bus.latest("runs.>")
    assert sorted(int(record.payload) for record in found) == list(range(700))
    assert sorted(record.sequence for record in found) == [record.sequence for record in found]


async def test_forget_deletes_what_is_stored_under_a_pattern(bus: Bus, other: Bus) -> None:
    for number in range(6):
        await bus.append(f"journal.run{number % 2}.0.0", b"%d" % number)
    assert await other.forget("journal.run0.>") == 3
    assert await bus.counts("journal.>") == {"journal.run1.0.0": 3}
    assert [int(record.payload) for record in await take(bus, "journal.>", 3)] == [1, 3, 5]
    assert await other.forget("journal.run0.>") == 0
    sequence = await bus.append("journal.run0.0.0", b"6")
    assert sequence > (await bus.latest("journal.run1.0.0"))[0].sequence


async def test_forget_deletes_what_is_before_a_sequence(bus: Bus, other: Bus) -> None:
    for number in range(6):
        assert await bus.commit(f"rollout.run{number % 2}.{number}", b"%d" % number)
    fourth = (await take(bus, "rollout.>", 4))[3]
    assert await other.forget("rollout.run0.>", before=fourth.sequence) == 2
    assert [int(record.payload) for record in await take(bus, "rollout.>", 4)] == [1, 3, 4, 5]
    assert await other.forget("rollout.run1.>", before=fourth.sequence) == 1
    assert not await bus.commit("rollout.run1.3", b"again")
    assert await bus.commit("rollout.run1.1", b"again")
    assert [int(record.payload) for record in await take(bus, "rollout.run1.*", 2)] == [3, 5]


async def test_counts(bus: Bus) -> None:
    assert await bus.counts("journal.>") == {}
    for number in range(5):
        await bus.append(f"journal.run.{number % 2}.0", b"")
    await bus.append("journal.other.0.0", b"")
    assert await bus.counts("journal.run.>") == {"journal.run.0.0": 3, "journal.run.1.0": 2}
    assert await bus.counts("journal.run.1.0") == {"journal.run.1.0": 2}
