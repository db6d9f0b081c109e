"""Which replica a call goes to, how many it may have, when it loses them: rules without a loop.

A rollout has a *home*, the replica with the highest hash of the two names together (rendezvous hashing), and
finds its prefix cached there. Every worker computes the same home without asking anybody; a new replica
takes over its share of the rollouts at once, and one that leaves gives away nobody's but its own.

    ============================  ==================================================
    home is up and has room       home
    home is full, out or leaving  the least loaded of those that are up and have room
    all that are up are full      nobody: the call waits
    all are out                   as if all were up: to try is the fastest check
    ============================  ==================================================

A replica that answers nothing at all, neither calls nor `MISSED_CHECKS` health checks in a row, is frozen: it
gets no new calls, and those that it has are taken away from it as soon as another is up and answers. While
none does, they stay: the engine may stall only for a while, and then goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from math import inf

import msgspec

from gym_models.wire.load import Load

TIGHT_KV = 0.95
LEAST_QUEUE = 4
QUEUE_SHARE = 8
GROWTH = 1.1
MISSED_CHECKS = 5
"""With a second between checks of at most five, half a minute of silence: vLLM's HTTP server has an event
loop that thousands of long answers hold up for seconds."""


class ReplicaState(msgspec.Struct, kw_only=True):
    """What a worker knows of one replica.

    Attributes:
        url: its base URL, which is its name.
        up: its last health check succeeded, and no connection has broken since.
        leaving: no source names it any more; it only finishes what it has.
        in_flight: calls that this worker has there.
        limit: calls that this worker may have there; infinite until the replica shows a queue.
        missed: health checks in a row that it has left without an answer; an answered call begins anew.
        load: what its metrics said last; None where it has none.
    """

    url: str
    up: bool = False
    leaving: bool = False
    in_flight: int = 0
    limit: float = inf
    missed: int = 0
    load: Load | None = None

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.limit


def choose(rollout: str, replicas: Iterable[ReplicaState]) -> ReplicaState | None:
    """The replica for a rollout's next call, or None where the call has to wait.

    >>> one, two = ReplicaState(url="one", up=True), ReplicaState(url="two", up=True)
    >>> home = choose("run.0.0", [one, two])
    >>> home.limit = 0
    >>> choose("run.0.0", [one, two]) in (one, two), choose("run.0.0", [one, two]) is home
    (True, False)
    """
    staying = [replica for replica in replicas if not replica.leaving]
    usable = [replica for replica in staying if replica.up] or staying
    if not usable:
        return None
    home = usable[0] if len(usable) == 1 else max(usable, key=lambda one: _weight(rollout, one.url))
    if home.has_room:
        return home
    free = [replica for replica in usable if replica.has_room]
    return min(free, key=lambda one: (one.in_flight / one.limit, one.in_flight), default=None)


@lru_cache(maxsize=1 << 16)
def _weight(rollout: str, url: str) -> bytes:
    return blake2b(f"{rollout}\n{url}".encode(), digest_size=8).digest()


def is_frozen(replica: ReplicaState) -> bool:
    """Whether a replica has been silent for too long."""
    return replica.missed >= MISSED_CHECKS


def is_forsaken(replica: ReplicaState, replicas: Iterable[ReplicaState]) -> bool:
    """Whether the calls at a replica are to be ended: it is frozen, and another, which is not silent, can
    have them.

    >>> frozen, other = ReplicaState(url="one", missed=MISSED_CHECKS), ReplicaState(url="two", up=True)
    >>> is_forsaken(frozen, [frozen, other]), is_forsaken(frozen, [frozen])
    (True, False)
    """
    others = (one for one in replicas if one is not replica)
    return is_frozen(replica) and any(one.up and not (one.leaving or one.missed) for one in others)


def adapted(replica: ReplicaState, load: Load) -> float:
    """The limit of a replica that says this of its load.

    An engine is best used with a short queue: enough to fill its next batch, and nothing that would be
    better off with another replica. A longer one is cut to that, each worker by its own share of the calls.
    A nearly full cache of keys and values takes a tenth off, before the engine has to throw work away. Where
    neither is, a limit that is in use grows by a tenth a look.
    """
    queue = max(LEAST_QUEUE, load.running // QUEUE_SHARE)
    if load.waiting > queue:
        return max(1.0, replica.in_flight * (load.running + queue) / (load.running + load.waiting))
    if load.kv_usage > TIGHT_KV:
        return max(1.0, min(replica.limit, replica.in_flight / GROWTH))
    if replica.in_flight * 2 < replica.limit:
        return replica.limit
    return replica.limit * GROWTH + 1
