"""Answers that were lost on the way, and how the caller that waits for them finds out.

A request is answered at most once. If the worker's connection breaks while an answer is on its way, the
answer is lost, and the caller does not notice, because the worker is alive. So a caller that has waited for a
while asks the worker which of the caller's requests it is executing. A request that the worker twice in a row
does not know is lost, and is sent again: requests are safe to repeat. A worker that has ended knows no
request, so this also detects the end of a worker whose ``gone`` signal was lost.

A request that is not lost may stall: `Stalls` logs a line for each worker that keeps requests waiting for
much longer than its pool has needed so far. A slow model alone is no stall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Stop
from gym_runtime.errors import UNREADABLE, GymError, NoWorker
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.timing import IN_FLIGHT_FIRST_S

IN_FLIGHT_LOOK_S = 2.0
"""How often a router looks for requests that have waited for long."""
IN_FLIGHT_LONGEST_S = 60.0
"""The longest interval between two such questions; it doubles from `IN_FLIGHT_FIRST_S`."""
IN_FLIGHT_ANSWER_S = 5.0
"""How long the worker may take to answer the question."""
IN_FLIGHT_MISSES = 2
"""After so many looks in a row at which the worker did not know the request, its answer is lost. Two, because
an answer may be on its way during the first."""

encode_keys = msgspec.json.Encoder().encode
decode_keys = msgspec.json.Decoder(list[str]).decode


@lru_cache(maxsize=4096)
def _subject(kind: str, pool: str, worker: str) -> str:
    # Cached: all requests share a few subjects.
    return f"{kind}.{token(pool, kind)}" + (f".{token(worker, 'worker')}" if worker else "")


class InFlightRequest(Stop):
    """A request whose caller waits for the answer; `stop` ends the waiting.

    Attributes:
        worker: the worker that was asked; empty for a question to any worker of the pool.
        lost: the worker no longer knows the request.
        blocked: where the worker's event loop was blocked when the waiting ended; empty if it was not.
    """

    # Slots: each request has such an object, and thousands exist at a time.
    __slots__ = ("_misses", "_wait_s", "blocked", "due_s", "key", "kind", "lost", "pool", "since_s", "worker")

    def __init__(self, kind: str, pool: str, worker: str, key: str) -> None:
        super().__init__()
        self.kind = kind
        self.pool = pool
        self.worker = worker
        self.key = key
        self.since_s = clock.monotonic()
        self.due_s = self.since_s + IN_FLIGHT_FIRST_S
        self.lost = False
        self.blocked = ""
        self._wait_s = IN_FLIGHT_FIRST_S
        self._misses = 0

    @property
    def subject(self) -> str:
        return _subject(self.kind, self.pool, self.worker)

    @property
    def name(self) -> str:
        """For messages and logs."""
        about = f"worker {self.worker}" + (f", {self.blocked}" if self.blocked else "")
        return f"{self.kind} '{self.pool}'" + (f" ({about})" if self.worker else "")

    def waited_s(self) -> float:
        return clock.monotonic() - self.since_s

    def held(self) -> None:
        """A worker executes it; the next question comes later."""
        self._misses = 0
        self._wait_s = min(IN_FLIGHT_LONGEST_S, self._wait_s * 2)
        self.due_s = clock.monotonic() + self._wait_s

    def unknown(self) -> None:
        """No worker knows it."""
        self._misses += 1
        if self._misses >= IN_FLIGHT_MISSES:
            self.lost = True
            self.stop()


class LostAnswers:
    """Finds lost answers among the requests that one router waits for.

    Args:
        waiting: the requests that the router waits for; not changed here.
    """

    def __init__(self, bus: Bus, waiting: Iterable[InFlightRequest]) -> None:
        self._bus = bus
        self._waiting = waiting

    async def watch(self) -> None:
        """Look every `IN_FLIGHT_LOOK_S` until cancelled."""
        while True:
            await anyio.sleep(IN_FLIGHT_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ask the workers about requests that have waited long enough."""
        now_s = clock.monotonic()
        due: dict[str, list[InFlightRequest]] = defaultdict(list)
        for request in self._waiting:
            if request.key and request.due_s <= now_s:
                due[request.worker].append(request)
        lost: list[InFlightRequest] = []

        async def ask(worker: str, requests: list[InFlightRequest]) -> None:
            unknown = await self._unknown(worker, [request.key for request in requests])
            if unknown is None:
                # A worker that did not answer may still execute them.
                return
            for request in requests:
                if request.key in unknown:
                    request.unknown()
                else:
                    request.held()
            lost.extend(request for request in requests if request.lost)

        async with anyio.create_task_group() as tasks:
            for worker, requests in due.items():
                tasks.start_soon(ask, worker, requests)
        if lost:
            logger().warning(
                "answers were lost; their requests are sent again", requests=len(lost), request=lost[0].name
            )

    async def _unknown(self, worker: str, keys: list[str]) -> set[str] | None:
        """The keys that a worker does not know; None if it gave no answer that can be read."""
        deadline_s = clock.monotonic() + IN_FLIGHT_ANSWER_S
        try:
            subject = f"holds.{token(worker, 'worker')}"
            answer = await self._bus.request(subject, encode_keys(keys), deadline_s=deadline_s)
            return set(decode_keys(answer))
        except NoWorker:
            # The worker is gone, or is reconnecting; then it answers at the next look.
            return set(keys)
        except (GymError, *UNREADABLE):
            return None


STALL_S = 60.0
"""The shortest wait that counts as a stall."""
STALL_SILENT = 3.0
"""A wait of so many times the longest so far is a stall where the pool answers no request meanwhile."""
STALL_TIMES = 10.0
"""The same where it answers others: those behind many in a queue may wait for several times as long."""
STALL_FIRST_S = 300.0
"""The same where it has answered nothing yet: a slow model may need minutes for its first answers."""
STALL_LOOK_S = 10.0
"""How often an agent worker looks for such requests."""


class Pace(NamedTuple):
    """How long the answers of a pool have taken at most, and when the last one came."""

    slowest_s: float
    answered_s: float


class Stalls:
    """The stalled requests of one agent worker.

    Attributes:
        count: requests that stalled at the last look: they had waited for much longer than any answer of
            their pool has taken.

    Args:
        waiting: the requests without an answer.
        paces: of the answers so far, by kind and pool.
    """

    def __init__(self, waiting: Iterable[InFlightRequest], paces: Mapping[tuple[str, str], Pace]) -> None:
        self.count = 0
        self._waiting, self._paces = waiting, paces

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await anyio.sleep(STALL_LOOK_S)
            self.look()

    def look(self) -> None:
        """Look once."""
        slow: dict[str, list[InFlightRequest]] = defaultdict(list)
        for request in self._waiting:
            if request.waited_s() > self._limit_s(request):
                slow[request.name].append(request)
        self.count = sum(map(len, slow.values()))
        for name, requests in slow.items():
            longest_s = max(request.waited_s() for request in requests)
            logger().warning(
                "requests stall", request=name, requests=len(requests), longest_s=round(longest_s)
            )

    def _limit_s(self, request: InFlightRequest) -> float:
        """How long a request may wait before it counts as stalled."""
        pace = self._paces.get((request.kind, request.pool))
        if pace is None:
            return STALL_FIRST_S
        silent_s = max(STALL_S, STALL_SILENT * pace.slowest_s)
        silent = clock.monotonic() > pace.answered_s + silent_s
        return silent_s if silent else max(STALL_S, STALL_TIMES * pace.slowest_s)
