"""Members: who watches whom, arrivals, departures, deaths."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.rpc.members import MOST_BYTES, Heartbeat, announce, encode_heartbeat
from gym_runtime.rpc.watch import ring_of, watcher
from gym_runtime.timing import (
    MEMBER_ANSWER_S,
    MEMBER_GONE_S,
    MEMBER_MISSES,
    STATE_CHECKED_S,
    UNASKED_S,
)
from gym_testing.background import background, settled
from hypothesis import given
from hypothesis import strategies as st
from runtime.rpc.members.member_cluster import KNOWN_S, SLACK_S, Cluster, all_know, model, no_model

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


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


async def test_an_announcement_too_long_to_read_is_left_out(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    follower = await cluster.follower("a")
    await anyio.sleep(KNOWN_S)
    bus = await cluster.bus("one")
    for length in (MOST_BYTES + 1, MOST_BYTES):
        one = Heartbeat(worker=f"model-{length}", kind="model", pools=["policy"])
        text = encode_heartbeat(one)
        text = text[:-1] + b',"later":"' + b"x" * (length - len(text) - 11) + b'"}'
        assert len(text) == length
        await bus.publish(f"join.{one.name}", text)
    await settled(lambda: follower.views["model"].knows(f"model-{MOST_BYTES}"))
    assert not follower.views["model"].knows(f"model-{MOST_BYTES + 1}")
    assert f"a member reports {MOST_BYTES} bytes about itself at most" in "".join(capsys.readouterr())


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
    struck_s = clock.monotonic()
    await all_know(followers, no_model("one"), within_s=MEMBER_GONE_S + SLACK_S)
    assert clock.monotonic() - struck_s >= (MEMBER_MISSES - 1) * MEMBER_ANSWER_S
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


async def test_a_member_behind_a_slow_link_is_not_declared_gone(cluster: Cluster) -> None:
    followers = [await cluster.follower(name) for name in "ab"]
    await cluster.worker("one")
    await anyio.sleep(5)
    cluster.traffic.delay_s = lambda passing: 1.2 if "one" in (passing.sender, passing.receiver) else 0.0
    for _ in range(60):
        await anyio.sleep(0.5)
        assert all(members.views["model"].knows("one") for members in followers)


async def test_agent_workers_ask_a_model_worker_each_and_share_what_is_left(cluster: Cluster) -> None:
    followers = [await cluster.follower(name) for name in "ab"]
    _, other = [await cluster.worker(name) for name in ("one", "other")]

    def chosen() -> list[set[str | None]]:
        return [{members.views["model"].choose("policy") for _ in range(20)} for members in followers]

    await settled(lambda: chosen() == [{"one"}, {"other"}], within_s=KNOWN_S + SLACK_S)
    other.freeze()
    await settled(lambda: chosen() == [{"one"}, {"one"}], within_s=2 * MEMBER_GONE_S)
