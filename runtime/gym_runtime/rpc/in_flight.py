"""Answers that were lost on their way, and how the one who waits for them hears of it.

A request is answered at most once. Where the worker's connection breaks, an answer that is on its way is
gone, and nothing says so to the caller: the worker is alive. So a caller that has waited for a while asks the
worker which of its requests it is still at work on. One that it does not know, twice in a row, is lost, and
is asked again: requests are safe to repeat. A worker that has ended knows none: so this also finds the end of
a worker if the news of it was lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError, NoWorker
from gym_runtime.logs import logger
from gym_runtime.messages.names import token
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.timing import (
    IN_FLIGHT_ANSWER_S,
    IN_FLIGHT_FIRST_S,
    IN_FLIGHT_LONGEST_S,
    IN_FLIGHT_LOOK_S,
    IN_FLIGHT_MISSES,
)

KEYS_AT_ONCE = 1000

encode_keys = msgspec.json.Encoder().encode
decode_keys = msgspec.json.Decoder(list[str]).decode


class InFlightRequest:
    """A request that is waited for.

    Attributes:
        worker: who was asked; None if anybody of the pool.
        scope: ends the waiting.
        lost: the worker does not know it any more.
    """

    __slots__ = ("_misses", "_wait_s", "due_s", "key", "kind", "lost", "pool", "scope", "since_s", "worker")

    def __init__(self, kind: str, pool: str, worker: str | None, key: str) -> None:
        self.kind = kind
        self.pool = pool
        self.worker = worker
        self.key = key
        self.since_s = clock.now()
        self.due_s = self.since_s + IN_FLIGHT_FIRST_S
        self.scope = anyio.CancelScope()
        self.lost = False
        self._wait_s = IN_FLIGHT_FIRST_S
        self._misses = 0

    @property
    def subject(self) -> str:
        worker = f".{token(self.worker, 'worker')}" if self.worker else ""
        return f"{self.kind}.{token(self.pool, self.kind)}{worker}"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind} '{self.pool}'" + (f" (worker {self.worker})" if self.worker else "")

    def waited_s(self) -> float:
        return clock.now() - self.since_s

    def held(self) -> None:
        """It is being worked on; the next question comes later."""
        self._misses = 0
        self._wait_s = min(IN_FLIGHT_LONGEST_S, self._wait_s * 2)
        self.due_s = clock.now() + self._wait_s

    def unknown(self) -> None:
        """Nobody knows it."""
        self._misses += 1
        if self._misses >= IN_FLIGHT_MISSES:
            self.lost = True
            self.scope.cancel()


class LostAnswers:
    """Finds them among the requests that one router waits for.

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
        """Look again and again until cancelled."""
        while True:
            await anyio.sleep(IN_FLIGHT_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ask about what has been waited for long enough."""
        now_s = clock.now()
        due = [hop for hops in self._waiting.values() for hop in hops if hop.key and hop.due_s <= now_s]
        asked: dict[str, list[InFlightRequest]] = defaultdict(list)
        for hop in due:
            for worker in self._holders(hop):
                asked[worker].append(hop)
        said: dict[str, set[str] | None] = {}

        async def ask(worker: str) -> None:
            said[worker] = await self._unknown(worker, [hop.key for hop in asked[worker]])

        async with anyio.create_task_group() as tasks:
            for worker in asked:
                tasks.start_soon(ask, worker)
        for hop in due:
            answers = [said[worker] for worker in self._holders(hop) if worker in said]
            if any(answer is not None and hop.key not in answer for answer in answers):
                hop.held()
            elif answers and None not in answers:
                hop.unknown()
        lost = [hop for hop in due if hop.lost]
        if lost:
            logger().warning(
                "answers were lost and are asked for again", requests=len(lost), hop=lost[0].name
            )

    def _holders(self, hop: InFlightRequest) -> list[str]:
        """Who may be at work on it."""
        if hop.worker is not None:
            return [hop.worker]
        return [one.worker for one in self._views[hop.kind].alive() if hop.pool in one.pools]

    async def _unknown(self, worker: str, keys: list[str]) -> set[str] | None:
        """Those of the keys that a worker does not know; None if it did not say."""
        unknown: set[str] = set()
        for start in range(0, len(keys), KEYS_AT_ONCE):
            body = encode_keys(keys[start : start + KEYS_AT_ONCE])
            deadline_s = clock.now() + IN_FLIGHT_ANSWER_S
            try:
                answer = await self._bus.request(
                    f"holds.{token(worker, 'worker')}", body, deadline_s=deadline_s
                )
            except NoWorker:
                # It is gone, or connects again; in the latter case it answers at the next look.
                return set(keys)
            except GymError:
                return None
            unknown.update(decode_keys(answer))
        return unknown
