"""The workers of one kind that a caller knows to be alive, and which of them it asks.

`gym_runtime.rpc.watch` keeps them current. A worker that did not answer a caller is ``missing``: it gets no
requests, and is asked again until it answers or is declared gone.

Callers and workers pair up where their numbers divide evenly (`share`). If each of four agent workers asked
any of four model workers, each batch of requests would wake four processes for a quarter of the batch each,
and waking a process costs as much as several requests. A pair exchanges the same messages in fewer and larger
batches. If a worker has more to do than another, its callers also ask the other (`WorkerRegistry.choose`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Stop
from gym_runtime.logs import logger
from gym_runtime.messages.stored_records import leave_out
from gym_runtime.rpc.members import MOST_MEMBERS, Heartbeat
from gym_runtime.timing import SLOW_LINK_S

LOAD_FRESH_S = 10.0
"""How long the load that came with an answer counts. Without a limit, a worker that was full once would
never be chosen again."""

REMEMBERED = 256
"""How many drained workers are remembered, and how many that are gone. A caller may still wait for the answer
of a drained one, and must not count its end as a death; it may have a session of one that is gone."""

AHEAD = 1 / 16
"""How much fuller than another worker, as a share of its capacity, a caller's preferred worker may be."""


def _nothing() -> None:
    pass


def remember(workers: dict[str, Heartbeat | None], worker: str, known: Heartbeat | None) -> None:
    """Keep a worker as the newest of at most `REMEMBERED`."""
    workers[worker] = known
    if len(workers) > REMEMBERED:
        # A dict keeps the order of insertion, so the first key is the oldest.
        del workers[next(iter(workers))]


def _blocked(heartbeat: Heartbeat | None) -> str:
    return heartbeat.detail.get("blocked", "") if heartbeat is not None else ""


class Place(NamedTuple):
    """A caller's place among the callers that do the same work."""

    rank: int
    callers: int


ALONE = Place(0, 1)


class WorkerRegistry:
    """One caller's view of the workers of a kind.

    Args:
        changed: called when a worker arrives, leaves, or changes what it serves.

    Attributes:
        missing: workers that did not answer, each with its last heartbeat, and workers known only from an
            answer (`meet`).
    """

    def __init__(self, kind: str, changed: Callable[[], None] = _nothing) -> None:
        self.kind = kind
        self.missing: dict[str, Heartbeat] = {}
        self._alive: dict[str, Heartbeat] = {}
        self._pools: dict[str, list[str]] | None = None
        self._near: dict[str, list[str]] = {}
        self._place = ALONE
        self._loads: dict[str, tuple[float, float]] = {}
        self._in_flight: dict[str, dict[Stop, None]] = {}
        self._drained: dict[str, Heartbeat | None] = {}
        self._gone: dict[str, Heartbeat | None] = {}
        self._changed = anyio.Event()
        self._on_change = changed

    def learn(self, heartbeat: Heartbeat) -> None:
        """Store a worker's heartbeat."""
        if heartbeat.worker not in self._alive and len(self._alive) >= MOST_MEMBERS:
            return leave_out(f"join.{heartbeat.name}", f"{MOST_MEMBERS} members of its kind are known")
        if heartbeat.figures is not None:
            # Lists of members are sent whole; they need no figures.
            heartbeat = msgspec.structs.replace(heartbeat, figures=None)
        known = self._alive.get(heartbeat.worker)
        self.missing.pop(heartbeat.worker, None)
        self._gone.pop(heartbeat.worker, None)
        self._alive[heartbeat.worker] = heartbeat
        self._loads[heartbeat.worker] = (heartbeat.load, clock.monotonic())
        if (
            known is None
            or known.pools != heartbeat.pools
            or known.draining != heartbeat.draining
            or bool(known.held) != bool(heartbeat.held)
        ):
            self._note_change()
        return None

    def lose(self, worker: str) -> None:
        """A worker did not answer a request: cancel what waits for it, and send it no new requests."""
        heartbeat = self._alive.get(worker)
        if heartbeat is not None:
            self.missing[worker] = heartbeat
            self._remove(worker)

    def meet(self, worker: str, pool: str) -> None:
        """An unlisted worker answered for a pool: ask it about itself, like a missing worker.

        So this caller notices the worker's end even if the worker's announcement never arrives.
        """
        self._gone.pop(worker, None)
        if worker not in self._alive and worker not in self.missing:
            self.missing[worker] = Heartbeat(worker=worker, kind=self.kind, pools=[pool])
            self._on_change()

    def forget(self, worker: str) -> None:
        """A worker is gone."""
        missing = self.missing.pop(worker, None)
        known = self._alive.get(worker, missing)
        if known is not None:
            logger().info("a worker is gone", kind=self.kind, worker_gone=worker)
        if missing is not None:
            # A missing worker was removed before, so `_remove` will not report the change.
            self._on_change()
        remember(self._gone, worker, known or self._gone.get(worker))
        self._remove(worker)

    def _remove(self, worker: str) -> None:
        # An unlisted worker, too, may have requests: a caller that knows no worker asks the pool for one.
        for request in self._in_flight.get(worker, ()):
            request.stop()
        heartbeat = self._alive.pop(worker, None)
        if heartbeat is not None:
            if heartbeat.draining:
                remember(self._drained, worker, heartbeat)
            self._loads.pop(worker, None)
            self._note_change()

    def report(self, worker: str, load: float) -> None:
        """Store the load that came with a worker's answer."""
        # The answer may have come from a worker that has just been lost.
        if worker in self._loads:
            self._loads[worker] = (load, clock.monotonic())

    def begin(self, worker: str, request: Stop) -> None:
        """A request to a worker starts; it is stopped if the worker is lost before `end`."""
        # Not a set: they are stopped in the order in which they began, so a simulation can be replayed.
        self._in_flight.setdefault(worker, {})[request] = None

    def end(self, worker: str, request: Stop) -> None:
        """A request to a worker is over."""
        requests = self._in_flight[worker]
        requests.pop(request, None)
        if not requests:
            del self._in_flight[worker]

    def choose(self, pool: str, avoid: frozenset[str] = frozenset()) -> str | None:
        """The less loaded of two workers of a pool; None if no worker is known.

        A worker behind a slow link counts as more loaded than it is. If this caller has a share of the pool,
        it chooses from its share unless that worker is much fuller than another.

        The two are drawn at random, instead of the least loaded of all, so that callers which know the same
        loads do not all choose the same worker.
        """
        candidates = self._by_pool().get(pool) or []
        if avoid:
            # If all are to be avoided, a full worker is better than none.
            candidates = [worker for worker in candidates if worker not in avoid] or candidates
        elif near := self._near_ones(pool, candidates):
            own = self._less_loaded(near)
            # The weight of a slow link also applies to the caller with which the worker is paired.
            if not self._alive[own].slow:
                other = random.choice(candidates)
                return own if own == other or self._weight(own) <= self._weight(other) + AHEAD else other
        return self._less_loaded(candidates) if candidates else None

    def _less_loaded(self, candidates: list[str]) -> str:
        if len(candidates) > 2:
            candidates = random.sample(candidates, 2)
        return candidates[0] if len(candidates) == 1 else min(candidates, key=self._weight)

    def _near_ones(self, pool: str, candidates: list[str]) -> list[str]:
        near = self._near.get(pool)
        if near is None:
            near = self._near[pool] = share(candidates, self._place)
        return near

    def take_place(self, place: Place) -> None:
        """Ask the share of each pool's workers first that falls to this place among the callers."""
        self._place, self._near = place, {}

    def workers(self, pool: str) -> list[str]:
        """The workers of a pool that take new work."""
        return list(self._by_pool().get(pool) or ())

    def held(self, pool: str) -> str:
        """Why no worker of a pool should be asked now; empty if one may be, or none is known."""
        reason = ""
        for worker in self._by_pool().get(pool) or ():
            if not (reason := self._alive[worker].held):
                break
        return reason

    def serves(self, worker: str, pool: str) -> bool:
        """Whether a worker of a pool is alive and takes new work."""
        heartbeat = self._alive.get(worker)
        return heartbeat is not None and pool in heartbeat.pools and not heartbeat.draining

    def knows(self, worker: str) -> bool:
        """Whether a worker is alive, as far as this registry knows."""
        return worker in self._alive

    def get(self, worker: str) -> Heartbeat | None:
        """The last heartbeat of a worker that is alive."""
        return self._alive.get(worker)

    def has_drained(self, worker: str) -> bool:
        """Whether a worker that is gone had announced that it drained."""
        return worker in self._drained

    def is_gone(self, worker: str) -> bool:
        """Whether a worker was declared gone, and has not been heard of since."""
        return worker in self._gone

    def blocked(self, worker: str) -> str:
        """Where the event loop of a worker that is alive is blocked; empty if it is not."""
        return _blocked(self._alive.get(worker))

    def last_blocked(self, pool: str) -> str:
        """Where the event loop of the pool's last worker that is gone was blocked; empty if it was not."""
        gone = (one for one in reversed(self._gone.values()) if one is not None and pool in one.pools)
        return _blocked(next(gone, None))

    def alive(self) -> list[Heartbeat]:
        """All workers, draining ones included. Loads are those at the last answer or announcement."""
        return list(self._alive.values())

    def change(self) -> anyio.Event:
        """An event that is set when a worker arrives, leaves, or changes what it serves."""
        return self._changed

    def _weight(self, worker: str) -> float:
        load, heard_s = self._loads[worker]
        heartbeat = self._alive[worker]
        own = len(self._in_flight.get(worker, ())) / heartbeat.capacity
        # This caller's own requests are known exactly, even while the worker's figure is old.
        busy = max(load, own) if clock.monotonic() - heard_s < LOAD_FRESH_S else own
        return busy + 1 - SLOW_LINK_S / heartbeat.round_trip_s if heartbeat.slow else busy

    def _by_pool(self) -> dict[str, list[str]]:
        # Built when it is needed: a thousand workers that arrive together are sorted once.
        if self._pools is None:
            self._pools = {}
            for heartbeat in self._alive.values():
                if not heartbeat.draining:
                    for pool in heartbeat.pools:
                        self._pools.setdefault(pool, []).append(heartbeat.worker)
        return self._pools

    def _note_change(self) -> None:
        self._pools, self._near = None, {}
        # The new event first: a task that wakes up may wait again at once.
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        self._on_change()


def place_among(callers: Iterable[Heartbeat], own: str) -> Place:
    """The place of the caller with the name ``own`` among those that serve the same pools."""
    working = [caller for caller in callers if not caller.draining]
    pools = next((caller.pools for caller in working if caller.name == own), None)
    if pools is None:
        return ALONE
    peers = sorted(caller.name for caller in working if caller.pools == pools)
    return Place(peers.index(own), len(peers))


def share(workers: Sequence[str], place: Place) -> list[str]:
    """The workers of a pool that a caller asks first; none where their numbers do not divide evenly.

    >>> [share(["a", "b"], Place(rank, 4)) for rank in range(4)]
    [['a'], ['b'], ['a'], ['b']]
    >>> [share(["a", "b", "c", "d"], Place(rank, 2)) for rank in range(2)]
    [['a', 'c'], ['b', 'd']]
    >>> share(["a", "b", "c"], Place(0, 2))
    []
    """
    rank, callers = place
    ordered = sorted(workers)
    if callers <= 1 or len(ordered) <= 1:
        return []
    if callers % len(ordered) == 0:
        return [ordered[rank % len(ordered)]]
    return ordered[rank::callers] if len(ordered) % callers == 0 else []
