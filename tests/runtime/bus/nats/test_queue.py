"""The work queue on a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from urllib.parse import urlsplit

import anyio
import nats
import pytest
from gym_runtime.bus.interface import Delivery, QueueDepth
from gym_runtime.bus.nats import NatsBus, connect
from gym_runtime.errors import BrokerError
from gym_runtime.system.private_broker import Broker
from gym_testing.proxy import Proxy
from nats.aio.msg import Msg
from runtime.bus.nats.links import Inbox, link_of


async def until_empty(bus: NatsBus) -> None:
    """Acknowledgements take effect at the broker, which tells nobody."""
    while await bus.counts("task.>"):
        await anyio.sleep(0.01)


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


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_worker_that_is_connected_again_says_at_once_that_its_tasks_go_on(
    broker_url: str, prefix: str
) -> None:
    """A broker that was started again gives tasks without a sign of life to other workers within seconds."""
    where = urlsplit(broker_url)
    proxy, user = Proxy(str(where.hostname), where.port or 0), where.netloc.rpartition("@")[0]
    started, alive = anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        started.set()
        await anyio.sleep_forever()

    async def see(message: Msg) -> None:
        if message.data == b"+WPI":
            alive.set()

    tap = await nats.connect(broker_url)
    await tap.subscribe("$JS.ACK.>", cb=see)
    async with (
        proxy.listening() as port,
        connect(f"nats://{user}@127.0.0.1:{port}", prefix=prefix) as bus,
        anyio.create_task_group() as tasks,
    ):
        await bus.enqueue("task.a.1", b"")
        tasks.start_soon(lambda: bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=60.0))
        await started.wait()
        assert not alive.is_set()
        proxy.cut()
        await anyio.sleep(0.5)
        proxy.mend()
        with anyio.fail_after(15):  # otherwise after 20 seconds
            await alive.wait()
        tasks.cancel_scope.cancel()
    await tap.close()


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
            await anyio.sleep(3.0)
            await delivery.ack()
            done(delivery.deliveries)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: bus.pull("task.a.*", consumer="a", slots=8, handle=handle, ack_wait_s=1.5)
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
        await bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=1.5)

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
                    lambda: bus.pull("task.a.*", consumer="a", slots=1, handle=handle, ack_wait_s=1.5)
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
