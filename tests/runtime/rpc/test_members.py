"""Who is alive: announcements, the watch over members, and the list, on both buses and under faults."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.bus.nats import connect
from gym_runtime.errors import NoWorker
from gym_runtime.rpc.announcing import announce
from gym_runtime.rpc.members import Members, ring_of, watcher
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.rpc.roll_call import all_workers, fresh, listed
from gym_runtime.system.private_broker import Broker
from gym_runtime.testing.background import SOON_S, background, settled
from gym_runtime.testing.memory import Fate, MemoryBroker, MemoryBus, Passing
from gym_runtime.testing.virtual_clock import BACKEND
from gym_runtime.timing import (
    CLIENT_ASKED_S,
    CLIENT_MISSES,
    LISTS_COMPARED_S,
    MEMBER_ANSWER_S,
    MEMBER_ASKED_S,
    MEMBER_GONE_S,
    MEMBER_MISSES,
    ROLL_CALL_S,
    STATE_CHECKED_S,
    UNASKED_S,
)
from hypothesis import given
from hypothesis import strategies as st
from runtime.workers.hosting import announced

pytestmark = pytest.mark.anyio

SLACK_S = 0.3
KNOWN_S = ROLL_CALL_S + SLACK_S


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


class Traffic:
    """Counts what passes, by the first token of its subject; loses what a test chooses."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.lose: Callable[[Passing], bool] = lambda passing: False

    def fate(self, passing: Passing, dice: random.Random) -> Fate:
        self.sent[passing.subject.partition(".")[0]] += 1
        return Fate(drop=self.lose(passing))


class Cluster:
    """Followers and workers, each on a connection of its own."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.traffic = Traffic()
        self.broker = MemoryBroker(faults=self.traffic)
        self._stack = stack

    async def bus(self, name: str) -> MemoryBus:
        return await self._stack.enter_async_context(self.broker.connect(name))

    async def follower(self, name: str) -> Members:
        """An agent worker, as far as others see it."""
        bus = await self.bus(name)
        members = Members(bus, own=name)
        await self._stack.enter_async_context(background(members.follow))
        await self._stack.enter_async_context(announced(bus, "agent", name, ["tool_loop"]))
        return members

    async def worker(self, name: str, kind: str = "model") -> MemoryBus:
        bus = await self.bus(name)
        await self._stack.enter_async_context(announced(bus, kind, name, ["policy"]))
        return bus


@pytest.fixture
async def cluster() -> AsyncGenerator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(stack)


async def all_know(
    followers: Sequence[Members], what: Callable[[Members], object], *, within_s: float = SOON_S
) -> None:
    """Return once something holds for the list of every follower."""
    await settled(lambda: all(what(members) for members in followers), within_s=within_s)


def model(worker: str) -> Callable[[Members], bool]:
    """Whether a follower knows a model worker."""
    return lambda members: members.views["model"].knows(worker)


def no_model(worker: str) -> Callable[[Members], bool]:
    return lambda members: not members.views["model"].knows(worker)


# -- who watches whom ---------------------------------------------------------------------------------

names = st.text("abcdef0123456789", min_size=1, max_size=8)


@given(st.sets(names, min_size=1, max_size=8), names)
def test_a_member_is_watched_by_another_follower_if_there_is_one(followers: set[str], member: str) -> None:
    found = watcher(ring_of(followers), member)
    assert (found is None) == (followers == {member})
    assert found in {None, *followers - {member}}


@given(st.sets(names, min_size=2, max_size=8), names, names)
def test_a_new_follower_takes_over_what_it_watches_and_moves_nothing_else(
    followers: set[str], member: str, new: str
) -> None:
    before = watcher(ring_of(followers), member)
    assert watcher(ring_of(followers | {new}), member) in {before, new}


def test_the_watch_is_spread_over_the_followers() -> None:
    ring = ring_of(f"agent.{number}" for number in range(100))
    load = Counter(watcher(ring, f"model.{number}") for number in range(1000))
    assert max(load.values()) < 100


# -- arrivals, departures, deaths -----------------------------------------------------------------------


async def test_followers_hear_of_arrivals_changes_and_departures_at_once(cluster: Cluster) -> None:
    followers = [await cluster.follower(name) for name in "ab"]
    await anyio.sleep(KNOWN_S)
    draining, version = False, "1"

    def current() -> Heartbeat:
        detail = {"weight_version": version}
        return Heartbeat(worker="one", kind="model", pools=["policy"], draining=draining, detail=detail)

    bus = await cluster.bus("one")
    async with background(lambda: announce(bus, current)):
        await all_know(followers, lambda it: it.views["model"].workers("policy") == ["one"], within_s=0.1)
        draining, version = True, "2"
        await anyio.sleep(STATE_CHECKED_S)
        await all_know(followers, lambda it: not it.views["model"].workers("policy"), within_s=0.1)
        for members in followers:
            assert [one.detail for one in members.views["model"].alive()] == [{"weight_version": "2"}]
    await all_know(followers, no_model("one"), within_s=0.1)


@pytest.mark.parametrize("action", ["freeze", "cut"])
@pytest.mark.parametrize("phase_s", [0.0, 0.5, 1.0, 1.4])
async def test_a_worker_that_freezes_or_dies_is_gone_within_its_time_and_no_sooner(
    cluster: Cluster, action: str, phase_s: float
) -> None:
    followers = [await cluster.follower(name) for name in "abc"]
    bus = await cluster.worker("one")
    await anyio.sleep(10 + phase_s)
    {"freeze": bus.freeze, "cut": bus.cut}[action]()
    struck_s = clock.now()
    await all_know(followers, no_model("one"), within_s=MEMBER_GONE_S + SLACK_S)
    assert clock.now() - struck_s >= (MEMBER_MISSES - 1) * MEMBER_ANSWER_S
    {"freeze": bus.thaw, "cut": bus.mend}[action]()
    await all_know(followers, model("one"), within_s=UNASKED_S + STATE_CHECKED_S + 1)


async def test_a_short_disconnection_or_freeze_ends_nothing(cluster: Cluster) -> None:
    followers = [await cluster.follower(name) for name in "ab"]
    bus = await cluster.worker("one")
    await anyio.sleep(5)
    for break_off, mend in ((bus.cut, bus.mend), (bus.freeze, bus.thaw)):
        break_off()
        for _ in range(20):
            await anyio.sleep(0.1)
            assert all(members.views["model"].knows("one") for members in followers)
        mend()
        await anyio.sleep(10)
        assert all(members.views["model"].knows("one") for members in followers)


@pytest.mark.parametrize("action", ["freeze", "cut"])
async def test_a_follower_that_is_cut_off_declares_nobody_gone(cluster: Cluster, action: str) -> None:
    first, second = [await cluster.follower(name) for name in "ab"]
    for number in range(6):
        await cluster.worker(f"w{number}")
    await anyio.sleep(5)
    gone: list[str] = []
    listener = await cluster.bus("listener")
    async with listener.serve("gone.>", lambda incoming: gone.append(incoming.subject)):
        bus = cluster.broker["a"]
        {"freeze": bus.freeze, "cut": bus.cut}[action]()
        await anyio.sleep(30)
        {"freeze": bus.thaw, "cut": bus.mend}[action]()
        await anyio.sleep(30)
    assert {*gone} == {"gone.agent.a"}
    for members in (first, second):
        assert len(members.views["model"].alive()) == 6
        assert len(members.views["agent"].alive()) == 2


async def test_a_dead_watchers_members_are_watched_by_others(cluster: Cluster) -> None:
    followers = [await cluster.follower(f"follower-{number}") for number in range(8)]
    buses = [await cluster.worker(f"w{number}") for number in range(24)]
    await anyio.sleep(10)
    # As a host that fails: half of the followers and a third of the workers at the same moment.
    for number in range(4):
        cluster.broker[f"follower-{number}"].cut()
    for bus in buses[:8]:
        bus.cut()
    await anyio.sleep(2 * MEMBER_GONE_S + SLACK_S)
    for members in followers[4:]:
        assert len(members.views["model"].alive()) == 16
        assert len(members.views["agent"].alive()) == 4


async def test_a_worker_that_did_not_answer_a_caller_is_watched_by_it(cluster: Cluster) -> None:
    members = await cluster.follower("a")
    await anyio.sleep(KNOWN_S)
    await cluster.worker("one")
    await settled(lambda: members.views["model"].knows("one"))
    members.views["model"].lose("one")
    await settled(lambda: members.views["model"].knows("one"), within_s=0.5)


# -- what is lost on its way ------------------------------------------------------------------------------


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


# -- clients ----------------------------------------------------------------------------------------------


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


# -- traffic ----------------------------------------------------------------------------------------------


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


# -- without following --------------------------------------------------------------------------------------


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
        asked_s = clock.now()
        workers = await all_workers(asker)
        assert sorted(worker.name for worker in workers) == ["agent.a", "model.one", "resource.two"]
        assert clock.now() - asked_s < 0.01
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


# -- the same on both buses ---------------------------------------------------------------------------------


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
