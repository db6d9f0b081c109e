"""Answers that were lost on the way, and how the caller that waits for them finds out.

A request is answered at most once. If the worker's connection breaks while an answer is on its way, the
answer is lost, and the caller does not learn it: the worker is alive. So a caller that has waited for a while
asks the worker which of its requests the worker is executing. A request that the worker does not know, twice
in a row, is lost and is sent again: requests are safe to repeat. A worker that has ended knows no request, so
this also detects the end of a worker whose ``gone`` signal was lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus, Stop
from gym_runtime.errors import GymError, NoWorker
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.timing import IN_FLIGHT_FIRST_S

IN_FLIGHT_LOOK_S = 2.0
"""How often a router looks for requests that have waited for long."""
IN_FLIGHT_LONGEST_S = 60.0
"""The longest interval between two such questions; it doubles from `IN_FLIGHT_FIRST_S`."""
IN_FLIGHT_ANSWER_S = 5.0
"""How long the worker may take to say so."""
IN_FLIGHT_MISSES = 2
"""Looks in a row at which the worker did not know a request, until its answer is lost. Two, because an
answer may be on its way during the first."""

KEYS_AT_ONCE = 1000

encode_keys = msgspec.json.Encoder().encode
decode_keys = msgspec.json.Decoder(list[str]).decode


@lru_cache(maxsize=4096)
def _subject(kind: str, pool: str, worker: str) -> str:
    # The same few for all requests.
    return f"{kind}.{token(pool, kind)}" + (f".{token(worker, 'worker')}" if worker else "")


class InFlightRequest(Stop):
    """A request whose caller waits for the answer; `stop` ends the waiting.

    Attributes:
        worker: the worker that was asked; None for a question to any worker of the pool.
        lost: the worker no longer knows the request.
    """

    # There is one for each request, thousands at a time.
    __slots__ = ("_misses", "_wait_s", "due_s", "key", "kind", "lost", "pool", "since_s", "worker")

    def __init__(self, kind: str, pool: str, worker: str | None, key: str) -> None:
        super().__init__()
        self.kind = kind
        self.pool = pool
        self.worker = worker
        self.key = key
        self.since_s = clock.monotonic()
        self.due_s = self.since_s + IN_FLIGHT_FIRST_S
        self.lost = False
        self._wait_s = IN_FLIGHT_FIRST_S
        self._misses = 0

    @property
    def subject(self) -> str:
        return _subject(self.kind, self.pool, self.worker or "")

    @property
    def name(self) -> str:
        """For messages and logs."""
        return f"{self.kind} '{self.pool}'" + (f" (worker {self.worker})" if self.worker else "")

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
        waiting: by rollout; not changed here.
    """

    def __init__(
        self, bus: Bus, views: Mapping[str, WorkerRegistry], waiting: Mapping[str, list[InFlightRequest]]
    ) -> None:
        self._bus = bus
        self._views = views
        self._waiting = waiting

    async def watch(self) -> None:
        """Look every `IN_FLIGHT_LOOK_S` until cancelled."""
        while True:
            await anyio.sleep(IN_FLIGHT_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ask the workers about requests that have waited long enough."""
        now_s = clock.monotonic()
        due = [
            request
            for requests in self._waiting.values()
            for request in requests
            if request.key and request.due_s <= now_s
        ]
        asked: dict[str, list[InFlightRequest]] = defaultdict(list)
        for request in due:
            for worker in self._holders(request):
                asked[worker].append(request)
        answers: dict[str, set[str] | None] = {}

        async def ask(worker: str) -> None:
            answers[worker] = await self._unknown(worker, [request.key for request in asked[worker]])

        async with anyio.create_task_group() as tasks:
            for worker in asked:
                tasks.start_soon(ask, worker)
        # `_holders` is asked again: a worker that came meanwhile was not asked, and one that left is no
        # longer a holder.
        for request in due:
            replies = [answers[worker] for worker in self._holders(request) if worker in answers]
            # One worker that has it is enough; all must deny it before it counts as unknown.
            if any(answer is not None and request.key not in answer for answer in replies):
                request.held()
            # A worker that did not answer may have it.
            elif replies and None not in replies:
                request.unknown()
        lost = [request for request in due if request.lost]
        if lost:
            logger().warning(
                "answers were lost; their requests are sent again", requests=len(lost), request=lost[0].name
            )

    def _holders(self, request: InFlightRequest) -> list[str]:
        """The workers that may be executing it."""
        if request.worker is not None:
            return [request.worker]
        return [one.worker for one in self._views[request.kind].alive() if request.pool in one.pools]

    async def _unknown(self, worker: str, keys: list[str]) -> set[str] | None:
        """The keys that a worker does not know; None if it did not answer."""
        unknown: set[str] = set()
        # In portions, so that a question stays small enough to travel inline.
        for start in range(0, len(keys), KEYS_AT_ONCE):
            body = encode_keys(keys[start : start + KEYS_AT_ONCE])
            deadline_s = clock.monotonic() + IN_FLIGHT_ANSWER_S
            try:
                answer = await self._bus.request(
                    f"holds.{token(worker, 'worker')}", body, deadline_s=deadline_s
                )
            except NoWorker:
                # The worker is gone, or is reconnecting; then it answers at the next look.
                return set(keys)
            except GymError:
                return None
            unknown.update(decode_keys(answer))
        return unknown
