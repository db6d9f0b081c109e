"""The journal of a rollout: who was away for long asks whether it is still his."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from gym_runtime.bus.interface import Bus, Record
from gym_runtime.errors import Fenced
from gym_runtime.rollout.journal import BLOCK, Journal, Sweep, TurnRecord, journal_subject
from gym_runtime.timing import JOURNAL_FRESH_S, JOURNAL_READ_S
from gym_testing.memory import MemoryBroker
from msgspec import Raw

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

SUBJECT = journal_subject("run", 0, 0)


async def test_who_was_away_for_long_stops_when_another_went_on_or_all_is_forgotten() -> None:
    async with MemoryBroker().connect("agent") as bus:
        mine = Journal(bus, SUBJECT)
        await mine.store("request", Raw(b"1"))
        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await mine.confirm()

        other = Journal(bus, SUBJECT)
        await other.load()
        await other.store("request", Raw(b"2"))
        with pytest.raises(Fenced):
            await mine.confirm()

        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await other.confirm()
        await bus.forget(SUBJECT)
        with pytest.raises(Fenced):
            await other.confirm()


async def test_who_has_just_stored_a_turn_or_never_did_is_not_held_up() -> None:
    async with MemoryBroker().connect("agent") as bus:
        nothing, fresh = Journal(bus, SUBJECT), Journal(bus, SUBJECT)
        await fresh.store("request", Raw(b"1"))
        await bus.forget(SUBJECT)
        await fresh.confirm()
        await anyio.sleep(JOURNAL_FRESH_S + 1)
        await nothing.confirm()
        await Journal(None, "").confirm()


async def test_turns_with_notes_are_found_in_any_order() -> None:
    async with MemoryBroker().connect("agent") as bus:
        first = Journal(bus, SUBJECT)
        for number in range(2):
            first.note(f"call {number}", Raw(b'"answer %d"' % number))
            await first.store("", Raw(b"%d" % number), Raw(b'"note %d"' % number))
        first.note("call 2", Raw(b'"lost"'))  # with the turn that was not stored

        again = Journal(bus, SUBJECT)
        await again.load()
        assert list(map(bytes, again.notes())) == [b'"note 0"', b'"note 1"']
        assert again.is_replaying
        assert bytes(again.environment_answer("call 1") or b"") == b'"answer 1"'
        assert [bytes(again.answer_of(place)) for place in (1, 0)] == [b"1", b"0"]
        assert bytes(again.environment_answer("call 0") or b"") == b'"answer 0"'
        assert (again.environment_answer("call 2"), again.is_replaying, again.resumed) == (None, False, 2)


async def test_an_answer_that_comes_while_a_turn_is_stored_goes_with_the_next_one() -> None:
    async with MemoryBroker().connect("agent") as bus:
        first = Journal(bus, SUBJECT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.store, "", Raw(b"0"), Raw(b'"a"'))
            await anyio.lowlevel.checkpoint()
            first.note("call", Raw(b'"answer"'))
        await first.store("", Raw(b"1"), Raw(b'"b"'))
        records = [msgspec.json.decode(one.payload, type=TurnRecord) async for one in taken(bus, 2)]
    assert [[known.digest for known in one.environment] for one in records] == [[], ["call"]]


async def taken(bus: Bus, count: int) -> AsyncIterator[Record]:
    async for record in bus.records(SUBJECT):
        yield record
        count -= 1
        if not count:
            return


def test_a_turn_without_a_note_is_stored_as_before() -> None:
    record = TurnRecord(digest="d", answer=Raw(b"{}"), session="s")
    stored = msgspec.json.encode(record)
    assert stored == b'{"digest":"d","answer":{},"session":"s"}'
    assert bytes(msgspec.json.decode(stored, type=TurnRecord).note) == b"null"


def seen(image: bytes) -> Raw:
    url = b"data:image/png;base64," + image
    return Raw(b'{"output":[{"type":"input_image","image_url":"' + url + b'","detail":"auto"}]}')


async def test_an_image_that_comes_again_is_stored_once_and_read_as_it_was() -> None:
    large, other = b"A" * 500_000, b"B" * 500_000
    named = Raw(b'{"output":[{"image_url":"gym-image:' + b"0" * 64 + b'"}]}')
    bodies = [*([seen(large)] * 29), seen(other), seen(large), seen(b"C"), named]
    async with MemoryBroker().connect("agent") as bus:
        first, second = Journal(bus, SUBJECT), Journal(bus, SUBJECT)
        for number, body in enumerate(bodies[:20]):
            first.note(str(number), body)
            await first.store(str(number), Raw(b"1"))
        await second.load()  # another attempt goes on
        for number, body in enumerate(bodies):
            if number < 20:
                assert bytes(second.environment_answer(str(number)) or b"") == bytes(body)
                assert bytes(second.model_answer(str(number)) or b"") == b"1"
            else:
                second.note(str(number), body)
                await second.store(str(number), Raw(b"1"))
        stored = 0
        async for record in bus.records(SUBJECT):
            stored += len(record.payload)
            if record.sequence == len(bodies):
                break
        assert 1_000_000 < stored < 1_010_000, stored
        third = Journal(bus, SUBJECT)
        await third.load()
        for number, body in enumerate(bodies):
            assert bytes(third.environment_answer(str(number)) or b"") == bytes(body)
            third.model_answer(str(number))


@pytest.mark.parametrize("stored_before", [0, 2])
async def test_who_continues_asks_for_nothing_new_when_another_attempt_went_on_meanwhile(
    stored_before: int,
) -> None:
    """It took seconds to follow the journal, and the worker that it was taken from is alive after all."""
    async with MemoryBroker().connect("agent") as bus:
        first, second, third = (Journal(bus, SUBJECT) for _ in range(3))
        for number in range(stored_before):
            await first.store(str(number), Raw(b"1"))
        await second.load()
        await third.load()
        await third.turn()  # nothing is new yet
        await first.store("next", Raw(b"1"))
        with pytest.raises(Fenced):
            await second.turn()
        await first.turn()  # it has continued nothing
        await second.load()
        await second.turn()


async def test_a_name_of_an_image_that_no_record_has_discards_the_journal() -> None:
    async with MemoryBroker().connect("agent") as bus:
        body = b'{"image_url":"gym-image:' + b"0" * 64 + b'"}'
        record = b'{"digest":"a","answer":1,"environment":[["b",' + body + b']],"images":true}'
        assert await bus.append(SUBJECT, record, expect=0)
        journal = Journal(bus, SUBJECT)
        await journal.load()
        assert journal.length == 0


async def test_a_journal_whose_reading_takes_longer_than_the_limit_is_read_once() -> None:
    async with MemoryBroker().connect("agent") as bus:
        first = Journal(bus, SUBJECT)
        for number in range(4):
            await first.store("request", Raw(b"%d" % number))
        read = bus.records
        begun: list[str] = []

        async def slow(subject: str) -> AsyncIterator[Record]:
            begun.append(subject)
            async for record in read(subject):
                await anyio.sleep(JOURNAL_READ_S / 3)
                yield record

        bus.records = slow  # pyright: ignore[reportAttributeAccessIssue]
        again = Journal(bus, SUBJECT)
        with anyio.fail_after(20 * JOURNAL_READ_S):
            await again.load()
        assert len(begun) == 1
        assert [bytes(again.answer_of(place)) for place in range(4)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_turn_whose_asker_hangs_up_while_it_is_stored_fences_nothing(arrives: bool) -> None:
    async with MemoryBroker().connect("agent") as bus:
        mine = Journal(bus, SUBJECT)
        await mine.store("request", Raw(b"1"))
        append = bus.append

        async def late(*arguments: Any, **keywords: Any) -> int | None:
            if not arrives:
                await anyio.sleep_forever()
            stored = await append(*arguments, **keywords)
            await anyio.sleep(1)
            return stored

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bus, "append", late)
            with anyio.move_on_after(0.5) as hung_up:
                await mine.store("request", Raw(b"2"))
        assert hung_up.cancelled_caught
        await mine.store("request", Raw(b"3"))
        assert len([one async for one in taken(bus, 2 + arrives)]) == 2 + arrives

        other = Journal(bus, SUBJECT)
        await other.load()
        await other.store("request", Raw(b"4"))
        with pytest.raises(Fenced):
            await mine.store("request", Raw(b"5"))


def test_journals_are_deleted_of_each_block_whose_rollouts_are_committed() -> None:
    sweep = Sweep("run")
    for task in range(3 * BLOCK):
        sweep.published(task)
        sweep.published(task)
    deleted = [pattern for task in range(2 * BLOCK) for _ in range(2) for pattern in sweep.committed(task)]
    assert deleted == ["journal.run.0.>", "journal.run.1.>"]
    sweep.published(0)  # a replacement
    assert sweep.committed(2 * BLOCK) == []
    assert sweep.committed(0) == ["journal.run.0.>"]


def test_journals_are_deleted_for_a_caller_that_waits_for_each_batch() -> None:
    """Then the next block is published when the one before has ended."""
    sweep, deleted = Sweep("run"), list[str]()
    for first in range(0, 4 * BLOCK, BLOCK // 4):
        batch = range(first, first + BLOCK // 4)
        for task in batch:
            sweep.published(task)
        for task in batch:
            deleted += sweep.committed(task)
    assert deleted == [f"journal.run.{block}.>" for block in range(3)]
    assert len(sweep._left) == 1


def test_an_ended_block_in_which_a_rollout_is_repeated_is_kept_until_that_is_committed() -> None:
    sweep = Sweep("run")
    sweep.published(0)
    assert sweep.committed(0) == []
    for task in (BLOCK, 0, BLOCK + 1):
        sweep.published(task)
    assert sweep.committed(BLOCK) == []
    assert sweep.committed(0) == ["journal.run.0.>"]
