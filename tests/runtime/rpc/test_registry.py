"""A caller's view of the workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from gym_runtime.bus.interface import Stop
from gym_runtime.rpc.registry import LOAD_FRESH_S, Heartbeat, WorkerRegistry
from gym_runtime.timing import SLOW_LINK_S
from gym_testing.background import background
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.virtual_time


def presence(worker: str, load: float = 0.0, *, capacity: int = 10, **more: Any) -> Heartbeat:
    return Heartbeat(worker=worker, kind="model", pools=["policy"], load=load, capacity=capacity, **more)


def view_of(*workers: Heartbeat) -> WorkerRegistry:
    view = WorkerRegistry("model")
    for worker in workers:
        view.learn(worker)
    return view


# -- choosing -----------------------------------------------------------------------------------------


def test_without_workers_there_is_no_choice() -> None:
    assert view_of().choose("policy") is None
    assert view_of(presence("a")).choose("judge") is None


def test_the_less_loaded_of_two_is_chosen() -> None:
    view = view_of(presence("a", 0.5), presence("b", 0.25))
    assert view.choose("policy") == "b"
    view.report("b", 0.75)
    assert view.choose("policy") == "a"


@pytest.mark.anyio
async def test_what_this_caller_has_in_flight_counts_before_the_worker_says_so() -> None:
    view = view_of(presence("a"), presence("b", 0.25))
    scopes = [anyio.CancelScope() for _ in range(3)]
    for scope in scopes:
        view.begin("a", scope)
    assert view.choose("policy") == "b"
    for scope in scopes:
        view.end("a", scope)
    assert view.choose("policy") == "a"


def test_a_worker_behind_a_slow_link_gets_less_and_not_nothing() -> None:
    view = view_of(presence("near", 0.4), presence("far", round_trip_s=2 * SLOW_LINK_S))
    assert view.choose("policy") == "near"
    view.report("near", 0.6)
    assert view.choose("policy") == "far"
    view.learn(presence("far", round_trip_s=0.9 * SLOW_LINK_S))
    view.report("near", 0.1)
    assert view.choose("policy") == "far"


@given(st.dictionaries(st.text("abcdef", min_size=1), st.floats(0, 1), min_size=2, max_size=6))
def test_the_fullest_is_never_chosen_while_there_is_another(loads: dict[str, float]) -> None:
    view = view_of(*[presence(worker, load) for worker, load in loads.items()])
    chosen = view.choose("policy")
    assert chosen is not None
    assert loads[chosen] < max(loads.values()) or len({*loads.values()}) < len(loads)


def test_whom_to_avoid_is_avoided_unless_nobody_else_is_there() -> None:
    view = view_of(presence("a", 0.1), presence("b", 0.9))
    assert view.choose("policy", frozenset({"a"})) == "b"
    assert view.choose("policy", frozenset({"a", "b"})) == "a"


def test_who_drains_gets_nothing_new_but_is_still_known() -> None:
    view = view_of(presence("a"), presence("b"))
    view.learn(presence("a", draining=True))
    assert view.workers("policy") == ["b"]
    assert view.knows("a")
    assert {worker.worker for worker in view.alive()} == {"a", "b"}


@pytest.mark.anyio
async def test_what_waits_for_a_worker_that_is_forgotten_is_stopped_and_the_worker_may_come_back() -> None:
    view = view_of(presence("a"), presence("b"))
    waiting, other = Stop(), Stop()
    view.begin("a", waiting)
    view.begin("b", other)
    view.forget("a")
    view.forget("nobody")
    assert (waiting.stopped, other.stopped) == (True, False)
    assert view.workers("policy") == ["b"]
    view.learn(presence("a"))
    assert set(view.workers("policy")) == {"a", "b"}


def test_the_requests_of_a_lost_worker_are_stopped_in_the_order_in_which_they_began() -> None:
    view = view_of(presence("a"))
    ended: list[int] = []
    # Enough of them that a set, which iterates in the order of their addresses, would hardly keep the order.
    for number in range(50):
        request = Stop()
        request.calls(partial(ended.append, number))
        view.begin("a", request)
    view.lose("a")
    assert ended == list(range(50))


@pytest.mark.anyio
async def test_changed_returns_at_arrivals_and_departures_only() -> None:
    view = view_of(presence("a"))
    changes = 0

    async def count() -> None:
        nonlocal changes
        while True:
            await view.change().wait()
            changes += 1

    async with background(count):
        await anyio.wait_all_tasks_blocked()
        for step, expected in [
            (lambda: view.learn(presence("a", 0.5)), 0),
            (lambda: view.learn(presence("b")), 1),
            (lambda: view.learn(presence("b", draining=True)), 2),
            (lambda: view.forget("a"), 3),
            (lambda: view.forget("a"), 3),
        ]:
            step()
            await anyio.wait_all_tasks_blocked()
            assert changes == expected


@pytest.mark.anyio
async def test_the_load_that_came_with_an_answer_counts_for_a_while_only() -> None:
    view = view_of(presence("a"), presence("b"))
    view.report("a", 1.0)
    scope = Stop()
    view.begin("b", scope)
    assert {view.choose("policy") for _ in range(20)} == {"b"}
    await anyio.sleep(LOAD_FRESH_S + 0.1)
    assert {view.choose("policy") for _ in range(20)} == {"a"}
    view.end("b", scope)


@pytest.mark.anyio
async def test_a_worker_that_did_not_answer_is_missing_until_it_answers_or_is_gone() -> None:
    view = view_of(presence("a"), presence("b"))
    waiting = Stop()
    view.begin("a", waiting)
    view.lose("a")
    assert waiting.stopped
    assert (view.workers("policy"), view.knows("a"), list(view.missing)) == (["b"], False, ["a"])
    view.learn(presence("a"))
    assert (set(view.workers("policy")), list(view.missing)) == ({"a", "b"}, [])
    view.lose("a")
    view.forget("a")
    view.lose("nobody")
    assert list(view.missing) == []


def test_a_worker_that_is_gone_leaves_where_it_was_blocked_until_it_is_heard_of() -> None:
    view = view_of(presence("a", detail={"blocked": "blocked at own.py:7 in verify"}))
    assert view.blocked("a") == "blocked at own.py:7 in verify"
    assert not view.last_blocked("policy")
    view.lose("a")
    view.forget("a")
    view.forget("a")  # another watcher says so, too
    assert view.last_blocked("policy") == "blocked at own.py:7 in verify"
    assert not view.last_blocked("judge")
    view.learn(presence("a"))
    assert not view.last_blocked("policy")
    assert not view.blocked("a")
