"""Which workers an agent worker asks first: callers and workers pair up where their numbers come out even.

If each of four agent workers asked any of four model workers, the requests that it writes at once would reach
four processes, each of which would wake for a quarter of them; and to wake costs as much as several requests.
A pair exchanges the same messages in fewer and larger batches. A worker that has more to do than another
passes requests on to it (`gym_runtime.rpc.registry.WorkerRegistry.choose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gym_runtime.rpc.registry import Heartbeat


class Place(NamedTuple):
    """A caller's place among the callers that do the same work."""

    rank: int
    callers: int


ALONE = Place(0, 1)


def place_among(callers: Iterable[Heartbeat], own: str) -> Place:
    """The place of the caller with the name ``own`` among those that serve the same pools."""
    working = [caller for caller in callers if not caller.draining]
    pools = next((caller.pools for caller in working if caller.name == own), None)
    if pools is None:
        return ALONE
    peers = sorted(caller.name for caller in working if caller.pools == pools)
    return Place(peers.index(own), len(peers))


def share(workers: Sequence[str], place: Place) -> list[str]:
    """The workers of a pool that a caller asks first; none where callers and workers do not come out even.

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
