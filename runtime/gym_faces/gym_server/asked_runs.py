"""The rollouts of ``/run``: a retry gets the rollout of the first request, a new request gets a new rollout.

NeMo Gym's clients mark no retry. A trainer whose dataset is small sends the same body again in its next step,
with the same numbers of tasks and rollouts, and several jobs may send it at the same time. But a client
retries only after it has lost its connection. So:

- A request joins an earlier one with the same body whose client left without the answer: it gets the rollout
  in progress, or its result.
- A result that one client has received goes to no other request, and clients that wait at the same time get a
  rollout each. So no rollout is trained on twice. A client that loses its connection at the end of its
  answer, or unnoticed by the server, gets another rollout of its row.
- Requests with the same header ``Idempotency-Key`` and the same body are one request.

A result is kept for `RUN_KEPT_S` after the last request for it, within `MAX_KEPT_BYTES`; a rollout for which
no client waits that long is cancelled. A failure of the system is not kept: a retry runs the rollout again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup
from gym_runtime import clock
from gym_runtime.errors import GymError, RuntimeFault
from gym_runtime.logs import logger
from gym_runtime.timing import RUN_KEPT_S

from gym_faces.gym_server.answers import Answer, of_error

RUNS_SWEPT_S = 5.0
"""How often results and rollouts are checked for that."""

MAX_KEPT_BYTES = 256 * 2**20
Work = Callable[[], Awaitable[Answer]]


class AskedRun:
    """A rollout that a client has requested.

    Attributes:
        named: its client gave it an ``Idempotency-Key``.
        answer: None until it is complete.
        delivered: a client has received the answer.
    """

    def __init__(self, key: bytes, *, named: bool) -> None:
        self.key = key
        self.named = named
        self.answer: Answer | None = None
        self.delivered = False
        self.waiting = 0
        self.left_s = clock.monotonic()
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()

    @property
    def joinable(self) -> bool:
        return self.named or not (self.waiting or self.delivered)


class Runs:
    """
    Args:
        tasks: lasts longer than every request.
        kept_s: how long a result is kept, and how long a rollout continues without a waiting client.
    """

    def __init__(self, tasks: TaskGroup, *, kept_s: float = RUN_KEPT_S) -> None:
        self._tasks = tasks
        self._kept_s = kept_s
        self._known: dict[bytes, list[AskedRun]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    @asynccontextmanager
    async def asked(self, key: bytes, work: Work, *, named: bool) -> AsyncGenerator[AskedRun]:
        """The finished rollout of a request; the caller sets ``delivered`` when the client has the answer.

        Args:
            key: equal for equal requests.
            work: runs the rollout, unless an earlier request has started it.
        """
        run = next((one for one in self._known.get(key, ()) if one.joinable), None)
        if run is None:
            run = AskedRun(key, named=named)
            self._known.setdefault(key, []).append(run)
            self._tasks.start_soon(self._make, run, work)
        run.waiting += 1
        try:
            await run.done.wait()
            yield run
        finally:
            run.waiting -= 1
            run.left_s = clock.monotonic()
            if run.delivered and not run.named and not run.waiting:
                self._forget(run)

    async def _make(self, run: AskedRun, work: Work) -> None:
        with run.scope:
            try:
                run.answer = await work()
            except GymError as error:
                run.answer = of_error(error)
            except Exception as error:  # noqa: BLE001 - a handler boundary: one bad request ends no server
                logger().exception("the server raised")
                run.answer = of_error(RuntimeFault(f"{type(error).__name__}; see the server's log"))
        if run.answer is None or run.answer.status >= 500:
            self._forget(run)
        run.done.set()

    def _forget(self, run: AskedRun) -> None:
        with suppress(KeyError, ValueError):  # it is forgotten already
            self._known[run.key].remove(run)
            if not self._known[run.key]:
                del self._known[run.key]

    async def sweep(self) -> None:
        """Forget results and cancel rollouts that no client wants any more, until cancelled."""
        while True:
            await anyio.sleep(RUNS_SWEPT_S)
            self.tidy()

    def tidy(self) -> None:
        """One look of `sweep`."""
        idle = [run for runs in self._known.values() for run in runs if not run.waiting]
        idle.sort(key=lambda run: run.left_s, reverse=True)
        oldest_s, kept_bytes = clock.monotonic() - self._kept_s, 0
        for run in idle:
            kept_bytes += len(run.answer.body) if run.answer else 0
            if run.left_s < oldest_s or kept_bytes > MAX_KEPT_BYTES:
                self._forget(run)
                run.scope.cancel()
