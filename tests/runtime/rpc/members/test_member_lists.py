"""Lists of members: lost announcements, clients, traffic, without following, on both buses."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.errors import NoWorker
from gym_runtime.rpc.members import Heartbeat, all_workers, announce, fresh, listed
from gym_runtime.rpc.watch import LISTS_COMPARED_S, Members
from gym_runtime.system.private_broker import Broker
from gym_runtime.timing import (
    CLIENT_ASKED_S,
    CLIENT_MISSES,
    MEMBER_ASKED_S,
    MEMBER_GONE_S,
    STATE_CHECKED_S,
    UNASKED_S,
)
from gym_testing.background import background, settled
from gym_testing.memory import MemoryBroker, Passing
from runtime.rpc.members.member_cluster import KNOWN_S, Cluster, all_know, model, no_model
from runtime.workers.hosting import announced
from structlog.testing import capture_logs

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_a_lost_announcement_is_repeated_when_nobody_asks(cluster: Cluster) -> None:
    members = await cluster.follower("a")
    await anyio.sleep(KNOWN_S)
    cluster.traffic.lose = lambda passing: passing.subject.startswith("join.")
    await cluster.worker("one")
    await anyio.sleep(1)
    assert not members.views["model"].alive()
    cluster.traffic.lose = lambda passing: False
    await settled(lambda: members.views["model"].knows("one"), within_s=UNASKED_S + STATE_CHECKED_S)


async def test_lists_that_differ_are_compared(cluster: Cluster) -> None:
    first, second = [await cluster.follower(name) for name in "ab"]
    await anyio.sleep(KNOWN_S)
    cluster.traffic.lose = lambda passing: passing.receiver == "b" and passing.kind == "signal"
    await cluster.worker("one")
    await settled(lambda: first.views["model"].knows("one"))
    second.learn(Heartbeat(worker="ghost", kind="resource", pools=["mcqa"]))
    # Each comparison may be with itself.
    await anyio.sleep(10 * LISTS_COMPARED_S)
    assert second.views["model"].knows("one")
    assert not second.views["resource"].alive()


@pytest.mark.slow
async def test_two_sites_that_were_cut_apart_find_each_others_members_again(cluster: Cluster) -> None:
    # At each site there are two followers, which watch each other: no member of it has to announce itself.
    followers = [await cluster.follower(f"{site}-{number}") for site in "ab" for number in range(2)]
    await anyio.sleep(KNOWN_S)
    for site in "ab":
        await cluster.worker(f"{site}-model")
        await cluster.worker(f"{site}-env", "resource")
    await anyio.sleep(UNASKED_S)

    def across(passing: Passing) -> bool:
        return passing.sender[0] != passing.receiver[0]

    def known(members: Members) -> int:
        return sum(len(members.views[kind].alive()) for kind in ("agent", "model", "resource"))

    assert [known(members) for members in followers] == [8] * 4
    cluster.traffic.lose = across
    await all_know(followers, lambda members: known(members) == 4, within_s=60)
    await anyio.sleep(600)
    # Afterwards each broker still prefers the followers at its own site.
    cluster.traffic.lose = lambda passing: across(passing) and passing.subject.startswith("members.")
    await all_know(followers, lambda members: known(members) == 8, within_s=2 * LISTS_COMPARED_S)
    cluster.traffic.sent.clear()
    await anyio.sleep(10 * LISTS_COMPARED_S)
    assert cluster.traffic.sent["call"] == 0


@pytest.mark.slow
async def test_a_follower_without_a_broker_for_hours_does_not_fill_its_log(cluster: Cluster) -> None:
    for name in "ab":
        await cluster.follower(name)
    await anyio.sleep(KNOWN_S)
    with capture_logs() as lines:
        cluster.broker["a"].cut()
        await anyio.sleep(3600)
        cluster.broker["a"].mend()
        await anyio.sleep(10)
    said = [line["event"] for line in lines]
    assert 0 < said.count("the list of members was not read") <= 4


async def test_a_client_is_gone_when_its_connection_closed_and_not_while_it_is_busy(cluster: Cluster) -> None:
    followers = [await cluster.follower(name) for name in "abc"]
    await anyio.sleep(KNOWN_S)
    bus = await cluster.worker("run-1", "client")
    await anyio.sleep(5)
    bus.freeze()
    await anyio.sleep(120)
    assert all(members.views["client"].knows("run-1") for members in followers)
    bus.thaw()
    await anyio.sleep(5)
    bus.cut()
    limit_s = (CLIENT_MISSES + 1) * CLIENT_ASKED_S
    await all_know(followers, lambda it: not it.views["client"].knows("run-1"), within_s=limit_s)


@pytest.mark.slow
async def test_the_traffic_grows_with_members_and_not_with_members_times_followers(cluster: Cluster) -> None:
    for number in range(5):
        await cluster.follower(f"follower-{number}")
    await anyio.sleep(KNOWN_S)
    for number in range(20):
        await cluster.worker(f"w{number}")
    await anyio.sleep(10)

    async def rates(seconds: float) -> Counter[str]:
        cluster.traffic.sent.clear()
        await anyio.sleep(seconds)
        return Counter(cluster.traffic.sent)

    few = await rates(30)
    for number in range(5, 20):
        await cluster.follower(f"follower-{number}")
    await anyio.sleep(10)
    many = await rates(30)
    expected = 30 / MEMBER_ASKED_S
    assert few["alive"] <= 1.1 * expected * (20 + 5)
    assert many["alive"] <= 1.1 * expected * (20 + 20)
    assert many["join"] == few["join"] == 0
    assert many["gone"] == few["gone"] == 0


async def test_one_who_does_not_follow_gets_the_list_from_a_follower_and_loads_from_the_workers(
    cluster: Cluster,
) -> None:
    await cluster.follower("a")
    await anyio.sleep(KNOWN_S)
    load = 0.0
    bus = await cluster.bus("one")
    await cluster.worker("two", "resource")
    asker = await cluster.bus("asker")

    def current() -> Heartbeat:
        return Heartbeat(worker="one", kind="model", pools=["policy"], load=load)

    async with background(lambda: announce(bus, current)):
        await anyio.sleep(1)
        asked_s = clock.monotonic()
        workers = await all_workers(asker)
        assert sorted(worker.name for worker in workers) == ["agent.a", "model.one", "resource.two"]
        assert clock.monotonic() - asked_s < 0.01
        load = 0.75
        assert {worker.name: worker.load for worker in await fresh(asker, workers)}["model.one"] == 0.75
        cluster.broker["two"].freeze()
        assert len(await fresh(asker, workers)) == 3
        cluster.broker["two"].thaw()
        assert await listed(asker, "none") == []


async def test_without_any_follower_the_roll_is_called(cluster: Cluster) -> None:
    await cluster.worker("one")
    await cluster.worker("two", "resource")
    await cluster.worker("run", "client")
    asker = await cluster.bus("asker")
    with pytest.raises(NoWorker):
        await listed(asker, "model")
    assert sorted(worker.name for worker in await all_workers(asker)) == ["model.one", "resource.two"]


async def test_many_followers_that_start_together_cause_few_announcements(cluster: Cluster) -> None:
    await cluster.worker("one")
    buses = [await cluster.bus(f"follower-{number}") for number in range(20)]
    followers = [Members(bus, own=bus.name) for bus in buses]
    async with background(*(members.follow for members in followers)):
        await anyio.sleep(KNOWN_S)
        assert all(members.views["model"].knows("one") for members in followers)
        # Each announcement reaches every follower.
        assert cluster.traffic.sent["join"] <= 3 * 20


class BothBuses:
    """Connections to one broker, in memory or real."""

    def __init__(self, connect: Callable[[], Any], stack: AsyncExitStack) -> None:
        self._connect = connect
        self._stack = stack

    async def bus(self) -> Bus:
        return await self._stack.enter_async_context(self._connect())


@asynccontextmanager
async def connections(kind: str, folder: Path) -> AsyncGenerator[BothBuses]:
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield BothBuses(MemoryBroker().connect, stack)
        else:
            broker = Broker(folder)
            stack.callback(broker.stop)
            url = broker.start()
            yield BothBuses(lambda: connect(url), stack)


@pytest.mark.parametrize("kind", ["memory", "nats"])
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["real-time"])
@pytest.mark.slow
async def test_the_list_is_kept_on_each_bus(kind: str, tmp_path: Path) -> None:
    left: list[Incoming] = []
    async with connections(kind, tmp_path) as here:
        first, second, worker, client = [await here.bus() for _ in range(4)]
        one, two = Members(first, own="a"), Members(second, own="b")
        async with (
            announced(worker, "model", "early", ["policy"]),
            background(one.follow, two.follow),
            announced(first, "agent", "a", ["tool_loop"]),
            client.serve("gone.>", left.append),
        ):
            await all_know((one, two), model("early"))
            async with announced(worker, "model", "late", ["policy"]):
                await all_know((one, two), model("late"))
                workers = {worker.name for worker in await fresh(client, await all_workers(client))}
                assert workers == {"agent.a", "model.early", "model.late"}
            await all_know((one, two), no_model("late"))
            assert [incoming.subject for incoming in left] == ["gone.model.late"]
            # Nobody answers for it, as after SIGKILL.
            one.learn(Heartbeat(worker="dead", kind="model", pools=["policy"]))
            await settled(lambda: not one.views["model"].knows("dead"), within_s=MEMBER_GONE_S + 1)
