"""What a rollout has used of its limits: the record, and who may write it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import msgspec
import pytest
from gym_runtime.rollout.account import CLEARED_AT_MOST, KILLED_AT_MOST, NOTES, Account, Spent
from gym_runtime.rpc.retry_budget import RETRIES
from gym_testing.memory import MemoryBroker, MemoryBus

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@pytest.fixture
async def bus() -> AsyncGenerator[MemoryBus]:
    async with MemoryBroker().connect("worker") as bus:
        yield bus


def account(bus: MemoryBus) -> Account:
    return Account(bus, "journal.r.0.0.0", 160.0, worker="spot")


@pytest.mark.parametrize(
    ("spent", "golden"),
    [
        (Spent(), b"{}"),
        (
            Spent(used_s=1.5, retries=2, attempts=3, failures=1, losses=1, turns=4, working=True),
            b'{"used_s":1.5,"retries":2,"attempts":3,"failures":1,"losses":1,"turns":4,"working":true}',
        ),
        (
            Spent(attempts=3, losses=1, lost=3, turns=4),
            b'{"attempts":3,"losses":1,"lost":3,"turns":4}',
        ),
        (Spent(working=True, worker="agent-1"), b'{"working":true,"worker":"agent-1"}'),
    ],
)
def test_golden_bytes(spent: Spent, golden: bytes) -> None:
    assert msgspec.json.encode(spent) == golden
    assert msgspec.json.decode(golden, type=Spent) == spent


async def test_time_counts_while_attempts_are_made_and_is_handed_on(bus: MemoryBus) -> None:
    first = account(bus)
    await anyio.sleep(1000)
    first.start()
    await anyio.sleep(60)
    assert first.left_s == pytest.approx(100)
    first.budget.take(5)
    first.attempt_over(failed=True)
    assert await first.give_back()
    await anyio.sleep(1000)
    second = account(bus)
    await second.load(turns=0, delivered_before=True)
    second.start()
    assert second.left_s == pytest.approx(100)
    assert second.budget.left == RETRIES - 5
    assert (second.spent.attempts, second.spent.failures, second.spent.losses) == (2, 1, 0)


async def test_a_worker_that_does_not_give_back_is_lost_and_a_turn_clears_that(bus: MemoryBus) -> None:
    turns = [0, 0, 0, 2, 2]
    losses: list[int] = []
    for stored in turns:
        one = account(bus)
        await one.load(turns=stored, delivered_before=True)
        losses.append(one.spent.losses)
        one.start()
        assert await one.note(working=True)
    assert losses == [1, 2, 3, 1, 2]


async def test_turns_clear_only_so_many_losses(bus: MemoryBus) -> None:
    found: list[tuple[int, bool]] = []
    for stored in range(CLEARED_AT_MOST + 3):
        one = account(bus)
        await one.load(turns=stored, delivered_before=True)
        found.append((one.spent.losses, one.spent.cleared_by_turns))
        assert await one.note(working=True)
    assert found == [*[(1, True)] * (CLEARED_AT_MOST - 1), (1, False), (2, False), (3, False), (4, False)]


async def test_turns_clear_more_losses_of_workers_that_were_ended_from_outside(bus: MemoryBus) -> None:
    found: list[int] = []
    for stored in range(KILLED_AT_MOST + 3):
        one = account(bus)
        await one.load(turns=stored, delivered_before=True, killed=lambda worker: worker == "spot")
        found.append(one.spent.losses)
        assert await one.note(working=True)
    assert found == [*[1] * KILLED_AT_MOST, 2, 3, 4]


async def test_what_waits_on_a_worker_is_not_lost_with_it(bus: MemoryBus) -> None:
    losses: list[int] = []
    for waits in (False, True, True, False, False):
        one = account(bus)
        await one.load(turns=0, delivered_before=True)
        losses.append(one.spent.losses)
        assert await one.note(working=not waits)
    assert losses == [1, 2, 2, 2, 3]


async def test_who_was_overtaken_writes_no_more_and_nothing_is_written_after_the_end(bus: MemoryBus) -> None:
    old, new = account(bus), account(bus)
    for one in (old, new):
        await one.load(turns=0, delivered_before=True)
        one.start()
    assert await new.note(working=True)
    assert not await old.note(working=True)
    assert await new.give_back()
    assert await new.note(working=True)
    (record,) = await bus.latest("journal.r.0.0.0.spent")
    assert not msgspec.json.decode(record.payload, type=Spent).working


async def test_a_note_is_due_each_part_of_the_deadline(bus: MemoryBus) -> None:
    one = account(bus)
    await anyio.sleep(1000)
    assert not one.due
    one.start()
    await anyio.sleep(160 / NOTES - 0.1)
    assert not one.due
    await anyio.sleep(0.2)
    assert one.due
    one.close()
    assert not one.due
