"""Limits and mistakes on the memory bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Delivery
from gym_runtime.errors import BrokerError, PayloadTooLarge, UsageError
from gym_testing.memory import MemoryBroker
from gym_testing.memory.subject_patterns import compiled, overlap
from tables import table
from testing.memory.fault_script import background

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_mistakes_are_refused(subtests: pytest.Subtests) -> None:
    async def handle(delivery: Delivery) -> None: ...

    async with MemoryBroker().connect() as bus:
        mistakes: dict[str, Callable[[], Awaitable[Any]]] = {
            "wildcard": partial(bus.publish, "a.*", b""),
            "empty token": partial(bus.publish, "a..b", b""),
            "space": partial(bus.request, "a b", b"", deadline_s=clock.monotonic() + 1),
            "line break": partial(bus.publish, "a", b"", headers={"k": "v\r\nInjected: 1"}),
            "not a task": partial(bus.enqueue, "rollout.a", b""),
            "not a rollout": partial(bus.commit, "task.a", b""),
            "not appendable": partial(bus.append, "rollout.a", b""),
            "not stored": partial(bus.latest, "service.>"),
            "too wide": partial(bus.forget, ">"),
            "not pulled": partial(bus.pull, "runs.>", consumer="c", slots=1, handle=handle),
        }
        for name, mistake in mistakes.items():
            with subtests.test(name), pytest.raises(UsageError):
                await mistake()


async def test_the_largest_payload() -> None:
    async with MemoryBroker(max_bytes=10).connect() as bus:
        await bus.append("journal.r", bytes(10))
        with pytest.raises(PayloadTooLarge, match="11 bytes"):
            await bus.append("journal.r", bytes(11))


async def test_patterns_of_consumers_must_not_overlap() -> None:
    async def handle(delivery: Delivery) -> None: ...

    async with (
        MemoryBroker().connect() as bus,
        background(partial(bus.pull, "task.a.>", consumer="a", slots=1, handle=handle)),
    ):
        await anyio.sleep(1)
        with pytest.raises(BrokerError, match="overlap"):
            await bus.pull("task.*.b", consumer="b", slots=1, handle=handle)
        with pytest.raises(BrokerError, match="exists for"):
            await bus.pull("task.b.>", consumer="a", slots=1, handle=handle)


async def test_only_the_newest_record_of_a_run_is_kept() -> None:
    async with MemoryBroker().connect() as bus:
        for number in range(3):
            await bus.append("runs.a", b"%d" % number)
            await bus.append("runs.b", b"%d" % number)
        assert await bus.counts("runs.>") == {"runs.a": 1, "runs.b": 1}
        assert [record.payload for record in await bus.latest("runs.>")] == [b"2", b"2"]


async def test_what_was_forgotten_may_be_committed_again() -> None:
    async with MemoryBroker().connect() as bus:
        assert await bus.commit("rollout.r.0.0", b"1")
        assert await bus.forget("rollout.r.>") == 1
        assert await bus.commit("rollout.r.0.0", b"2")


@pytest.mark.slow
async def test_a_handler_that_always_fails_is_not_called_without_pause() -> None:
    calls = 0

    async def handle(delivery: Delivery) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("always")

    async with MemoryBroker().connect() as bus:
        await bus.enqueue("task.a", b"")
        with anyio.move_on_after(60):
            await bus.pull("task.>", consumer="c", slots=1, handle=handle)
    assert 10 <= calls <= 20


@table(
    ("pattern", "subject", "matches"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.b", "a+.b", True),
        ("a+.b", "aa.b", False),
    ],
)
def test_patterns(pattern: str, subject: str, *, matches: bool) -> None:
    assert bool(compiled(pattern).fullmatch(subject)) is matches


@table(
    ("one", "other", "expected"),
    [
        ("task.a.>", "task.b.>", False),
        ("task.a.>", "task.*.b", True),
        ("task.*.a", "task.*.b", False),
        ("task.*", "task.a.b", False),
        ("task.>", "task.a", True),
        ("a", "a", True),
        ("a.>", "a", False),
    ],
)
def test_overlap(one: str, other: str, *, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected
