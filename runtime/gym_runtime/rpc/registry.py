"""Who is there: each worker's lease, and a caller's view of all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import anyio
import msgspec

from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.messages.names import Token, token

LEASE_S = 4.0
RENEW_S = 1.0


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself each second.

    Attributes:
        kind: ``agent``, ``model`` or ``resource``.
        pools: the names it serves.
        load: 0 when idle, 1 when full.
        draining: it finishes what it has and takes nothing new.
        detail: what a pool's users may want to know, such as a model's name.
    """

    worker: Token
    kind: str
    pools: list[Token]
    host: str = ""
    pid: int = 0
    started_s: float = 0.0
    capacity: int = 1
    in_use: int = 0
    load: float = 0.0
    draining: bool = False
    detail: dict[str, str] = {}


encode_heartbeat = msgspec.json.Encoder().encode
decode_heartbeat = msgspec.json.Decoder(Heartbeat).decode


def read_heartbeat(payload: bytes) -> Heartbeat | None:
    """What a lease says; None, with a warning in the log, if it cannot be read.

    One worker of another version, or one that lies, must not end those who look for workers.
    """
    try:
        return decode_heartbeat(payload)
    except msgspec.DecodeError as error:
        logger().warning("a worker's lease cannot be read and is ignored", error=str(error))
        return None


async def announce(bus: Bus, current: Callable[[], Heartbeat]) -> None:
    """Renew a worker's lease each second until cancelled, then end it."""
    first = current()
    name = f"{token(first.kind, 'kind of worker')}.{token(first.worker, 'worker')}"
    try:
        while True:
            await bus.renew(name, encode_heartbeat(current()), ttl_s=LEASE_S)
            await anyio.sleep(RENEW_S)
    finally:
        # Without this it ends by itself; an error must not take the place of what ended the work.
        with anyio.move_on_after(1, shield=True), suppress(GymError):
            await bus.end(name)


class WorkerRegistry:
    """The workers that a caller knows to be alive, by pool, with their loads."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._alive: dict[str, Heartbeat] = {}
        self._pools: dict[str, list[str]] = {}
        self._loads: dict[str, float] = {}
        self._in_flight: dict[str, set[anyio.CancelScope]] = {}
        self._changed = anyio.Event()

    async def follow(self, bus: Bus, *, stored: bool = True) -> None:
        """Keep the view current until cancelled; without ``stored`` by what is heard alone."""
        async for lease in bus.leases(f"{self.kind}.>", stored=stored):
            worker = lease.name.rpartition(".")[2]
            if lease.payload is None:
                self.forget(worker)
            else:
                presence = read_heartbeat(lease.payload)
                if presence is not None:
                    self.learn(presence)

    def learn(self, presence: Heartbeat) -> None:
        """A worker said how it is."""
        known = self._alive.get(presence.worker)
        self._alive[presence.worker] = presence
        self._loads[presence.worker] = presence.load
        if known is None or known.pools != presence.pools or known.draining != presence.draining:
            self._index()

    def forget(self, worker: str) -> None:
        """A worker is gone, or was found not to answer."""
        if self._alive.pop(worker, None) is not None:
            logger().info("a worker is gone", kind=self.kind, worker_gone=worker)
            self._loads.pop(worker, None)
            for scope in self._in_flight.get(worker, ()):
                scope.cancel()
            self._index()

    def report(self, worker: str, load: float) -> None:
        """An answer said how full its worker is."""
        if worker in self._loads:
            self._loads[worker] = load

    def begin(self, worker: str, scope: anyio.CancelScope) -> None:
        """A request to a worker starts; ``scope`` is cancelled if the worker's lease ends meanwhile."""
        self._in_flight.setdefault(worker, set()).add(scope)

    def end(self, worker: str, scope: anyio.CancelScope) -> None:
        """A request to a worker is over."""
        scopes = self._in_flight[worker]
        scopes.discard(scope)
        if not scopes:
            del self._in_flight[worker]

    def choose(self, pool: str, avoid: frozenset[str] = frozenset()) -> str | None:
        """The less loaded of two workers of a pool; None if no worker is known.

        Two at random rather than the least of all: callers with the same view do not all pick the same.
        """
        candidates = self._pools.get(pool) or []
        if avoid:
            candidates = [worker for worker in candidates if worker not in avoid] or candidates
        if len(candidates) > 2:
            candidates = random.sample(candidates, 2)
        return min(candidates, key=self._weight, default=None)

    def workers(self, pool: str) -> list[str]:
        """The workers of a pool that take new work."""
        return list(self._pools.get(pool) or ())

    def serves(self, worker: str, pool: str) -> bool:
        """Whether a worker of a pool is there and takes new work."""
        presence = self._alive.get(worker)
        return presence is not None and pool in presence.pools and not presence.draining

    def knows(self, worker: str) -> bool:
        """Whether a worker's lease is alive, as far as this view knows."""
        return worker in self._alive

    def alive(self) -> list[Heartbeat]:
        """Everybody, draining workers included."""
        return list(self._alive.values())

    async def changed(self) -> None:
        """Return at the next arrival or departure of a worker."""
        await self._changed.wait()

    def _weight(self, worker: str) -> float:
        presence = self._alive[worker]
        return max(self._loads[worker], len(self._in_flight.get(worker, ())) / presence.capacity)

    def _index(self) -> None:
        pools: dict[str, list[str]] = {}
        for presence in self._alive.values():
            if not presence.draining:
                for pool in presence.pools:
                    pools.setdefault(pool, []).append(presence.worker)
        self._pools = pools
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
