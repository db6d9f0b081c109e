"""Callers and workers pair up, and a worker that is fuller than others passes on."""

from __future__ import annotations

from collections import Counter

from gym_runtime.rpc.members import Heartbeat
from gym_runtime.rpc.registry import ALONE, Place, WorkerRegistry, place_among, share
from gym_runtime.timing import SLOW_LINK_S
from hypothesis import given
from hypothesis import strategies as st


def caller(name: str, *pools: str, draining: bool = False) -> Heartbeat:
    return Heartbeat(worker=name, kind="agent", pools=list(pools), draining=draining)


def registry(place: Place, **loads: float) -> WorkerRegistry:
    view = WorkerRegistry("model")
    for name, load in loads.items():
        view.learn(Heartbeat(worker=name, kind="model", pools=["policy"], load=load, capacity=1024))
    view.take_place(place)
    return view


def chosen(view: WorkerRegistry) -> set[str | None]:
    return {view.choose("policy") for _ in range(100)}


@given(st.integers(1, 12), st.integers(0, 12))
def test_shares_are_even_or_there_are_none(callers: int, workers: int) -> None:
    names = [f"w{number}" for number in range(workers)]
    shares = [share(names, Place(rank, callers)) for rank in range(callers)]
    asked = Counter(worker for one in shares for worker in one)
    assert not any(shares) or (set(asked) == set(names) and len(set(asked.values())) == 1)


def test_a_place_is_among_those_that_do_the_same() -> None:
    callers = [
        caller("a", "loop"),
        caller("b", "other"),
        caller("c", "loop"),
        caller("d", "loop", draining=True),
    ]
    assert place_among(callers, "agent.c") == Place(1, 2)
    assert place_among(callers, "agent.b") == Place(0, 1)
    assert place_among(callers, "agent.unknown") == ALONE


def test_each_caller_asks_its_own_worker() -> None:
    assert chosen(registry(Place(0, 2), a=0.0, b=0.0)) == {"a"}
    assert chosen(registry(Place(1, 2), a=0.0, b=0.0)) == {"b"}
    assert chosen(registry(Place(1, 2), a=0.0, b=0.0, c=0.0, d=0.0)) <= {"b", "d"}


def test_without_pairs_all_are_asked() -> None:
    assert chosen(registry(ALONE, a=0.0, b=0.0, c=0.0)) == {"a", "b", "c"}
    assert chosen(registry(Place(0, 2), a=0.0, b=0.0, c=0.0)) == {"a", "b", "c"}


def test_a_fuller_worker_passes_on() -> None:
    assert chosen(registry(Place(0, 2), a=0.05, b=0.0)) == {"a"}
    assert "b" in chosen(registry(Place(0, 2), a=0.1, b=0.0))


def test_pairs_change_with_the_workers() -> None:
    view = registry(Place(0, 2), a=0.0, b=0.0)
    view.forget("a")
    assert chosen(view) == {"b"}
    view.learn(Heartbeat(worker="a", kind="model", pools=["policy"], capacity=1024))
    assert chosen(view) == {"a"}
    assert view.choose("policy", frozenset({"a"})) == "b"


def test_a_worker_behind_a_slow_link_is_not_preferred() -> None:
    view = registry(Place(0, 2), a=0.0, b=0.0)
    far = Heartbeat(worker="a", kind="model", pools=["policy"], capacity=1024, round_trip_s=3 * SLOW_LINK_S)
    view.learn(far)
    assert far.slow
    assert chosen(view) == {"b"}
