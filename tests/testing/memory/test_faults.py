"""Single faults of the memory bus."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Delivery, Incoming, QueueDepth
from gym_runtime.errors import BrokerError, ConnectionLost, DeadlineExceeded
from gym_testing.memory import Chances, Fate, MemoryBroker
from testing.memory.fault_script import Script, background

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_policy_sees_every_message() -> None:
    script = Script()
    broker = MemoryBroker(faults=script)
    async with broker.connect("client") as client, broker.connect("server") as server, background() as tasks:

        def answer(incoming: Incoming) -> None:
            tasks.start_soon(server.publish, incoming.reply, b"")

        async with server.serve("a.*", answer):
            await client.request("a.b", b"", deadline_s=clock.monotonic() + 1)
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
            await bus.request("a", b"3", deadline_s=clock.monotonic() + 5)
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
            assert await bus.request("a", b"request", deadline_s=clock.monotonic() + 5) == b"re request"
            assert await bus.request("a", b"again", deadline_s=clock.monotonic() + 5) == b"re again"
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
                await client.request("a", b"", deadline_s=clock.monotonic() + 100)
            assert await client.request("a", b"", deadline_s=clock.monotonic() + 100) == b"7"
    assert anyio.current_time() == 7
