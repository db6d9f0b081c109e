"""Leases of workers, and a caller's view of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_runtime import clock
from gym_runtime.rpc.registry import LEASE_S, RENEW_S, Heartbeat, WorkerRegistry, announce, decode_heartbeat
from gym_runtime.testing.clock import BACKEND
from gym_runtime.testing.memory import MemoryBroker
from hypothesis import given
from hypothesis import strategies as st
from runtime.workers.hosting import announced, background, settled


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND


@pytest.fixture
async def broker() -> MemoryBroker:
    return MemoryBroker()


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
async def test_who_is_forgotten_has_what_waits_for_it_cancelled_and_may_come_back() -> None:
    view = view_of(presence("a"), presence("b"))
    waiting, other = anyio.CancelScope(), anyio.CancelScope()
    view.begin("a", waiting)
    view.begin("b", other)
    view.forget("a")
    view.forget("nobody")
    assert (waiting.cancel_called, other.cancel_called) == (True, False)
    assert view.workers("policy") == ["b"]
    view.learn(presence("a"))
    assert set(view.workers("policy")) == {"a", "b"}


# -- leases -------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_worker_is_there_while_it_announces_itself_and_gone_at_once_afterwards(
    broker: MemoryBroker,
) -> None:
    async with broker.connect() as bus:
        async with announced(bus, "model", "one", ["policy"]):
            await anyio.sleep(10 * LEASE_S)
            lease = (await bus.alive("model.>"))[0]
            assert lease.name == "model.one"
            assert lease.payload
            assert decode_heartbeat(lease.payload).pools == ["policy"]
        assert not await bus.alive(">")


@pytest.mark.anyio
async def test_each_renewal_says_how_the_worker_is_now(broker: MemoryBroker) -> None:
    load = 0.0
    view = WorkerRegistry("model")

    def current() -> Heartbeat:
        return presence("one", load)

    async with (
        broker.connect() as bus,
        background(lambda: announce(bus, current), lambda: view.follow(bus)),
    ):
        await settled(lambda: view.knows("one"))
        load = 0.5
        await anyio.sleep(RENEW_S)
        await settled(lambda: view.alive()[0].load == 0.5, within_s=0.5)


@pytest.mark.anyio
async def test_a_view_follows_arrivals_departures_and_deaths(broker: MemoryBroker) -> None:
    view = WorkerRegistry("model")
    async with (
        broker.connect() as caller,
        broker.connect() as first,
        broker.connect() as second,
        background(lambda: view.follow(caller)),
        announced(second, "model", "two", ["policy", "judge"]),
    ):
        async with (
            announced(first, "model", "one", ["policy"]),
            announced(first, "resource", "x", ["mcqa"]),
        ):
            await settled(lambda: len(view.workers("policy")) == 2)
            assert view.workers("judge") == ["two"]
            assert not view.knows("x")
        await settled(lambda: view.workers("policy") == ["two"], within_s=0.1)
        second.freeze()
        frozen_s = clock.now()
        await settled(lambda: not view.alive(), within_s=LEASE_S + 1)
        assert clock.now() - frozen_s > LEASE_S - RENEW_S - 0.1
        second.thaw()
        await settled(lambda: view.workers("policy") == ["two"], within_s=RENEW_S + 0.1)


@pytest.mark.anyio
async def test_changed_returns_at_arrivals_and_departures_only(broker: MemoryBroker) -> None:
    view = view_of(presence("a"))
    changes = 0

    async def count() -> None:
        nonlocal changes
        while True:
            await view.changed()
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
