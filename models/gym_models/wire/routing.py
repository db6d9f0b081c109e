"""Which replica a call goes to, how many calls a replica may have, when it loses them: pure rules.

A rollout has a *home*, the replica with the highest hash of the two names together (rendezvous hashing), and
finds its prefix cached there. Every worker computes the same home without any communication; a new replica
takes over its share of the rollouts at once, and a replica that leaves gives up only its own.

    ============================  ==================================================
    home is up and has room       home
    home is full, out or leaving  the least loaded of those that are up and have room
    home is up, but rests         as if it were out, if another is up
    all that are up are full      none: the call waits
    all are out                   as if all were up: a call is the fastest check
    ============================  ==================================================

A replica rests whose checks succeed and whose calls fail or hang, such as a proxy before an engine that is
gone. So does one that refuses every call, as with a wrong key, while there is another that has not done so.
It rests longer each time, until it answers a call.

A replica that answers nothing at all, neither calls nor `MISSED_CHECKS` health checks in a row, is frozen: it
gets no new calls, and its calls are cancelled as soon as another replica is up and answers. Until then they
stay: the engine may only stall for a while and then continue.
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
    """One replica's state, as a worker sees it.

    Attributes:
        url: its base URL, which is its name.
        up: its last health check succeeded, and no connection has broken since.
        leaving: no source names it any more; it only finishes its calls.
        in_flight: calls that this worker has there.
        limit: calls that this worker may have there; infinite until the replica shows a queue.
        missed: unanswered health checks in a row; an answered call resets it to 0.
        failed: failed calls in a row; an answered call resets it to 0.
        refused: its last answered call was refused as any other would be.
        rests_until_s: it rests until this time of `gym_runtime.clock.monotonic`.
        load: its last metrics; None if it has none.
    """

    url: str
    up: bool = False
    leaving: bool = False
    in_flight: int = 0
    limit: float = inf
    missed: int = 0
    failed: int = 0
    refused: bool = False
    rests_until_s: float = 0.0
    load: Load | None = None

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.limit


def choose(rollout: str, replicas: Iterable[ReplicaState], now_s: float = inf) -> ReplicaState | None:
    """The replica for a rollout's next call, or None where the call has to wait.

    ``now_s`` is the time, by which replicas rest.

    >>> one, two = ReplicaState(url="one", up=True), ReplicaState(url="two", up=True)
    >>> home = choose("run.0.0", [one, two])
    >>> home.limit = 0
    >>> choose("run.0.0", [one, two]) in (one, two), choose("run.0.0", [one, two]) is home
    (True, False)
    """
    staying = [replica for replica in replicas if not replica.leaving]
    up = [replica for replica in staying if replica.up]
    usable = [replica for replica in up if replica.rests_until_s <= now_s] or up or staying
    if not usable:
        return None
    home = usable[0] if len(usable) == 1 else max(usable, key=lambda one: _weight(rollout, one.url))
    if home.has_room:
        return home
    free = [replica for replica in usable if replica.has_room]
    return min(free, key=lambda one: (one.in_flight / one.limit, one.in_flight), default=None)


# A rollout asks for its home at each turn.
@lru_cache(maxsize=1 << 16)
def _weight(rollout: str, url: str) -> bytes:
    # Not `hash`, which differs from process to process: all workers must agree on a home.
    return blake2b(f"{rollout}\n{url}".encode(), digest_size=8).digest()


def is_frozen(replica: ReplicaState) -> bool:
    """Whether a replica has been silent for too long."""
    return replica.missed >= MISSED_CHECKS


def is_forsaken(replica: ReplicaState, replicas: Iterable[ReplicaState]) -> bool:
    """Whether the calls at a replica are to be cancelled: it is frozen, and another, which answers, can take
    them.

    >>> frozen, other = ReplicaState(url="one", missed=MISSED_CHECKS), ReplicaState(url="two", up=True)
    >>> is_forsaken(frozen, [frozen, other]), is_forsaken(frozen, [frozen])
    (True, False)
    """
    others = (one for one in replicas if one is not replica)
    return is_frozen(replica) and any(one.up and not (one.leaving or one.missed) for one in others)


def held(replicas: Iterable[ReplicaState], *, in_line: int, kv_usage: float, waiting: int) -> str:
    """Why rollouts should ask none of the replicas now; empty if one of them may be asked.

    An engine without work takes calls, whatever it says of its cache.

    >>> busy = ReplicaState(url="one", up=True, load=Load(running=9, kv_usage=0.93))
    >>> held([busy], in_line=0, kv_usage=0.9, waiting=0)
    '93% of the cache of keys and values is in use, above hold_kv_usage 90%'
    >>> held([busy, ReplicaState(url="two", up=True)], in_line=0, kv_usage=0.9, waiting=0)
    ''

    Args:
        in_line: calls that wait for any of them.
        kv_usage, waiting: above which an engine is too busy; 0 for no limit.
    """
    reason = ""
    for replica in replicas:
        load = replica.load
        if not replica.up or replica.leaving:
            continue
        if load is None or not load.running:
            return ""
        if kv_usage and load.kv_usage > kv_usage:
            used = f"{load.kv_usage:.0%} of the cache of keys and values is in use"
            reason = f"{used}, above hold_kv_usage {kv_usage:.0%}"
        elif waiting and load.waiting + in_line > waiting:
            reason = f"{load.waiting + in_line:,} calls wait, more than hold_waiting {waiting:,}"
        else:
            return ""
    return reason


def adapted(replica: ReplicaState, load: Load) -> float:
    """The limit of calls for a replica with this load.

    An engine works best with a short queue: enough to fill its next batch, and no call that another replica
    would answer sooner. A longer queue is cut to that, each worker by its own share of the calls. A nearly
    full cache of keys and values lowers the limit by a tenth, before the engine has to discard work.
    Otherwise a limit that is reached grows by a tenth per check.
    """
    queue = max(LEAST_QUEUE, load.running // QUEUE_SHARE)
    if load.waiting > queue:
        return max(1.0, replica.in_flight * (load.running + queue) / (load.running + load.waiting))
    if load.kv_usage > TIGHT_KV:
        return max(1.0, min(replica.limit, replica.in_flight / GROWTH))
    if replica.in_flight * 2 < replica.limit:
        return replica.limit
    return replica.limit * GROWTH + 1
