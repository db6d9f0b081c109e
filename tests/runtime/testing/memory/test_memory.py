"""The in-memory bus where it goes beyond the contract: its faults, its limits, and that they repeat."""

from __future__ import annotations

import contextvars
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from gym_runtime import clock
from gym_runtime.bus.interface import Delivery, Incoming, QueueDepth
from gym_runtime.errors import (
    BrokerError,
    ConnectionLost,
    DeadlineExceeded,
    PayloadTooLarge,
    UsageError,
)
from gym_runtime.testing.memory import Chances, Fate, MemoryBroker, Passing
from gym_runtime.testing.memory.patterns import compiled, overlap
from gym_runtime.testing.virtual_clock import BACKEND

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


@asynccontextmanager
async def background(*works: Callable[[], Awaitable[Any]]) -> AsyncGenerator[TaskGroup]:
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)
        yield tasks
        tasks.cancel_scope.cancel()


class Script:
    """A policy: the fates of the messages of some kinds, one after the other, then none."""

    def __init__(self, **fates: list[Fate]) -> None:
        self._fates = fates
        self.seen: list[Passing] = []

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        self.seen.append(passing)
        waiting = self._fates.get(passing.kind)
        return waiting.pop(0) if waiting else Fate()


# -- single faults --------------------------------------------------------------------------------------


async def test_a_policy_sees_every_message() -> None:
    script = Script()
    broker = MemoryBroker(faults=script)
    async with broker.connect("client") as client, broker.connect("server") as server, background() as tasks:

        def answer(incoming: Incoming) -> None:
            tasks.start_soon(server.publish, incoming.reply, b"")

        async with server.serve("a.*", answer):
            await client.request("a.b", b"", deadline_s=clock.now() + 1)
        await client.commit("rollout.r.0.0", b"")
    assert [(passing.kind, passing.sender, passing.receiver) for passing in script.seen] == [
        ("request", "client", "server"),
        ("answer", "server", "client"),
        ("store", "client", ""),
    ]
    assert script.seen[0].subject == "a.b"


async def test_dropped_signals_and_requests() -> None:
    script = Script(signal=[Fate(drop=True)], request=[Fate(drop=True)])
    broker = MemoryBroker(faults=script)
    seen: list[bytes] = []
    async with (
        broker.connect() as bus,
        broker.connect() as other,
        other.serve("a", lambda incoming: seen.append(incoming.payload)),
    ):
        await bus.publish("a", b"1")
        await bus.publish("a", b"2")
        with pytest.raises(DeadlineExceeded):
            await bus.request("a", b"3", deadline_s=clock.now() + 5)
    assert seen == [b"2"]


async def test_requests_and_answers_may_come_twice_but_signals_and_deliveries_not() -> None:
    twice = [Fate(double=True)] * 3
    broker = MemoryBroker(
        faults=Script(request=[*twice], answer=[*twice], signal=[*twice], delivery=[*twice])
    )
    seen: Counter[bytes] = Counter()
    async with broker.connect() as bus, broker.connect() as other, background() as tasks:

        def receive(incoming: Incoming) -> None:
            seen[incoming.payload] += 1
            if incoming.reply:
                tasks.start_soon(other.publish, incoming.reply, b"re " + incoming.payload)

        async def handle(delivery: Delivery) -> None:
            seen[delivery.payload] += 1
            await delivery.ack()

        async with other.serve("a", receive):
            await bus.publish("a", b"signal")
            assert await bus.request("a", b"request", deadline_s=clock.now() + 5) == b"re request"
            assert await bus.request("a", b"again", deadline_s=clock.now() + 5) == b"re again"
        await bus.enqueue("task.a", b"task")
        with anyio.move_on_after(60):
            await other.pull("task.>", consumer="c", slots=2, handle=handle)
    assert seen == {b"signal": 1, b"request": 2, b"again": 2, b"task": 1}


async def test_delayed_signals_overtake_only_on_other_subjects() -> None:
    broker = MemoryBroker(faults=Script(signal=[Fate(delay_s=2), Fate(), Fate(), Fate(delay_s=1)]))
    seen: list[tuple[bytes, float]] = []
    async with broker.connect() as bus, broker.connect() as other:
        began_s = anyio.current_time()

        def receive(incoming: Incoming) -> None:
            seen.append((incoming.payload, anyio.current_time() - began_s))

        async with other.serve(">", receive):
            await bus.publish("a", b"1")
            await bus.publish("a", b"2")
            await bus.publish("b", b"3")
            await bus.publish("a", b"4")
            await anyio.sleep(10)
    assert seen == [(b"3", 0.0), (b"1", 2.0), (b"2", 2.0), (b"4", 2.0)]


async def test_a_dropped_delivery_comes_again_after_the_ack_wait() -> None:
    broker = MemoryBroker(faults=Script(delivery=[Fate(drop=True)], ack=[Fate(drop=True)]))
    times: list[tuple[int, float]] = []
    async with broker.connect() as bus:
        began_s = anyio.current_time()

        async def handle(delivery: Delivery) -> None:
            times.append((delivery.deliveries, anyio.current_time() - began_s))
            await delivery.ack()

        await bus.enqueue("task.a", b"")
        with anyio.move_on_after(60):
            await bus.pull("task.>", consumer="c", slots=1, handle=handle, ack_wait_s=5)
        assert times == [(2, 5.0), (3, 10.0)]
        assert await bus.depth("c") == QueueDepth(waiting=0, in_flight=0)


async def test_lost_beats_mean_a_second_delivery_while_the_first_is_handled() -> None:
    broker = MemoryBroker(faults=Chances(drop=1.0, kinds=frozenset({"beat"})))
    times: list[tuple[int, float]] = []
    async with broker.connect() as bus, broker.connect() as other:

        async def handle(delivery: Delivery) -> None:
            times.append((delivery.deliveries, anyio.current_time()))
            await anyio.sleep(9)
            await delivery.ack()

        await bus.enqueue("task.a", b"")
        pull = partial(bus.pull, "task.>", consumer="c", slots=1, handle=handle, ack_wait_s=6)
        pull_too = partial(other.pull, "task.>", consumer="c", slots=1, handle=handle, ack_wait_s=6)
        async with background(pull, pull_too):
            await anyio.sleep(60)
    assert times == [(1, 0.0), (2, 6.0)]


async def test_after_a_lost_store_the_caller_does_not_know() -> None:
    found: set[tuple[str, bool]] = set()
    for seed in range(20):
        broker = MemoryBroker(faults=Script(store=[Fate(drop=True)]), seed=seed)
        async with broker.connect() as bus:
            with pytest.raises(BrokerError):
                await bus.commit("rollout.r.0.0", b"1")
            stored = bool(await bus.latest("rollout.>"))
            assert await bus.commit("rollout.r.0.0", b"2") is not stored
            assert await bus.commit("rollout.r.0.0", b"3") is False
            (record,) = await bus.latest("rollout.>")
            found.add((record.payload.decode(), stored))
    assert found == {("1", True), ("2", False)}


async def test_a_policy_can_cut_and_freeze_for_a_time() -> None:
    script = Script(request=[Fate(cut=("client",), lasts_s=3), Fate(freeze=("server",), lasts_s=4)])
    broker = MemoryBroker(faults=script)
    async with broker.connect("client") as client, broker.connect("server") as server, background() as tasks:

        def answer(incoming: Incoming) -> None:
            tasks.start_soon(server.publish, incoming.reply, b"%d" % anyio.current_time())

        async with server.serve("a", answer):
            with pytest.raises(ConnectionLost):
                await client.request("a", b"", deadline_s=clock.now() + 100)
            assert await client.request("a", b"", deadline_s=clock.now() + 100) == b"7"
    assert anyio.current_time() == 7


# -- connections ----------------------------------------------------------------------------------------


async def test_frozen_nothing_passes_and_nothing_is_lost() -> None:
    broker = MemoryBroker()
    seen: list[bytes] = []
    async with (
        broker.connect() as bus,
        broker.connect() as other,
        other.serve("a", lambda incoming: seen.append(incoming.payload)),
        bus.serve("b", lambda incoming: seen.append(incoming.payload)),
    ):
        other.freeze()
        for number in range(3):
            await bus.publish("a", b"a%d" % number)
            await other.publish("b", b"b%d" % number)
        await anyio.sleep(3600)
        assert seen == []
        other.thaw()
        await anyio.sleep(1)
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert [payload for payload in seen if payload.startswith(b"a")] == [b"a0", b"a1", b"a2"]


async def test_cut_what_was_on_its_way_in_is_lost_and_what_goes_out_waits() -> None:
    broker = MemoryBroker(faults=Script(signal=[Fate(delay_s=5)]))
    seen: list[bytes] = []
    async with (
        broker.connect() as bus,
        broker.connect() as other,
        other.serve("a", lambda incoming: seen.append(incoming.payload)),
        bus.serve("b", lambda incoming: seen.append(incoming.payload)),
    ):
        await bus.publish("a", b"lost")
        other.cut()
        await bus.publish("a", b"never sent")
        await other.publish("b", b"waits")
        await anyio.sleep(1)
        other.mend()
        await anyio.sleep(60)
    assert seen == [b"waits"]


async def test_a_store_waits_a_minute_for_the_connection() -> None:
    async with MemoryBroker().connect() as bus:
        bus.cut()
        with pytest.raises(BrokerError):
            await bus.enqueue("task.a", b"")
        assert anyio.current_time() == 60


async def test_everything_ends_with_the_connection() -> None:
    broker = MemoryBroker()
    ended: list[str] = []

    async def ends(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(ConnectionLost):
            await work()
        ended.append(name)

    async def drain(items: AsyncGenerator[Any]) -> None:
        async for _ in items:
            pass

    async def handle(delivery: Delivery) -> None:
        await anyio.sleep_forever()

    async with broker.connect() as bus, anyio.create_task_group() as tasks:
        await bus.enqueue("task.a", b"")
        pull = partial(bus.pull, "task.>", consumer="c", slots=2, handle=handle)
        tasks.start_soon(ends, "pull", pull)
        tasks.start_soon(ends, "records", partial(drain, bus.records("journal.>")))
        await anyio.sleep(1)
        await bus.aclose()
        await ends("publish", partial(bus.publish, "a", b""))
        await ends("enqueue", partial(bus.enqueue, "task.a", b""))
    assert sorted(ended) == ["enqueue", "publish", "pull", "records"]
    async with broker.connect() as bus:
        delivered: list[int] = []

        async def note(delivery: Delivery) -> None:
            delivered.append(delivery.deliveries)
            await delivery.ack()

        with anyio.move_on_after(60):
            await bus.pull("task.>", consumer="c", slots=2, handle=note)
        assert delivered == [2]


async def test_names_of_connections() -> None:
    broker = MemoryBroker()
    async with broker.connect("agent-1") as bus, broker.connect() as other:
        assert (bus.name, other.name) == ("agent-1", "bus-2")
        assert broker["agent-1"] is bus
        with pytest.raises(UsageError, match="agent-1"):
            async with broker.connect("agent-1"):
                pass
    async with broker.connect("agent-1"):
        pass


async def test_a_subscribers_bug_ends_nothing() -> None:
    seen: list[bytes] = []

    def receive(incoming: Incoming) -> None:
        seen.append(incoming.payload)
        raise ValueError("a bug")

    async with MemoryBroker().connect() as bus, bus.serve("a", receive):
        await bus.publish("a", b"1")
        await bus.publish("a", b"2")
        await anyio.sleep(1)
    assert seen == [b"1", b"2"]


async def test_subscribers_do_not_run_in_their_senders_context() -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")
    seen: list[str] = []
    async with MemoryBroker().connect() as bus, bus.serve("a", lambda incoming: seen.append(whose.get())):
        whose.set("the sender's")
        await bus.publish("a", b"")
        await anyio.sleep(1)
    assert seen == ["nobody's"]


async def test_receivers_share_no_headers() -> None:
    seen: list[dict[str, str]] = []

    def receive(incoming: Incoming) -> None:
        assert isinstance(incoming.headers, dict)
        seen.append(dict(incoming.headers))
        incoming.headers.clear()

    sent = {"k": " v "}
    async with MemoryBroker().connect() as bus, bus.serve("a", receive), bus.serve("*", receive):
        await bus.publish("a", b"", headers=sent)
        sent["k"] = "changed"
        await anyio.sleep(1)
    assert seen == [{"k": "v"}, {"k": "v"}]


# -- limits and mistakes --------------------------------------------------------------------------------


async def test_mistakes_are_refused(subtests: pytest.Subtests) -> None:
    async def handle(delivery: Delivery) -> None: ...

    async with MemoryBroker().connect() as bus:
        mistakes: dict[str, Callable[[], Awaitable[Any]]] = {
            "wildcard": partial(bus.publish, "a.*", b""),
            "empty token": partial(bus.publish, "a..b", b""),
            "space": partial(bus.request, "a b", b"", deadline_s=clock.now() + 1),
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
