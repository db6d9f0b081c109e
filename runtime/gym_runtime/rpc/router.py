"""The caller's side of a hop: choose a worker, ask, and ask again where that may help.

One rollout has one budget of retries and one deadline, whatever hop needs them. A worker that does not
exist any more shows within milliseconds (no responders); a full one refuses at once; in both cases
another is asked. A call to a session goes to the session's worker and nowhere else: if that one is gone,
so is the state, and `SessionLost` says so. A worker that ends while it works on a call costs no retry; a call
that ends its workers is found out and asked no more (`gym_runtime.rpc.suspects`).
"""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec

from gym_runtime import clock
from gym_runtime.errors import Busy, ConnectionLost, DeadlineExceeded, GymError, NoWorker, SessionLost
from gym_runtime.messages.calls import Request
from gym_runtime.rpc.exchange import Exchanges, RoutedReply, call_name
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.suspects import ALONE_AT
from gym_runtime.timing import RETRY_PAUSE_S

NO_WORKER_GRACE_S = 30.0
"""How long a request waits for any worker of its pool: a supervisor starts a worker again within a few
seconds, a model server within half a minute."""
SESSION_GRACE_S = 1.0
"""How long a call to a session waits for a worker that the broker does not know: after a restart of the
broker a worker is back a moment later than its callers."""


class Router(Exchanges):
    """Requests to pools of workers over one bus.

    Args:
        kinds: the kinds of workers that it asks; all without any.
        own: the worker id of the agent worker that asks; empty for another caller.
        watches: it takes a share of the watch over the members (`gym_runtime.rpc.members`).

    Attributes:
        members: who is alive.
        waiting: by rollout, the requests that it waits for, or waited for when it was stopped.
        meter: counts for the worker that asks.
    """

    async def ask(
        self,
        kind: str,
        pool: str,
        request: Request[Any],
        budget: RetryBudget,
        *,
        asked: set[str] | None = None,
        prefer: str = "",
    ) -> RoutedReply:
        """Ask any worker of a pool; each worker that is asked is added to ``asked``.

        ``prefer`` is asked first, if it is there and takes new work.

        Raises:
            GymError: the worker's own fault, or the last transport error once the budget or
                ``NO_WORKER_GRACE_S`` without any worker is used up, or `DeadlineExceeded`.
        """
        view = self.views[kind]
        pause_s = RETRY_PAUSE_S[0]
        avoid: set[str] = set()
        lonely_since: float | None = None
        while True:
            worker = prefer if prefer not in avoid and view.serves(prefer, pool) else None
            if worker is None:
                worker = view.choose(pool, frozenset(avoid)) if avoid else view.choose(pool)
            try:
                if worker is None:
                    worker = await self.find_worker(view, pool, request, budget)
                if asked is not None:
                    # Before it is asked: it may act on the request and its answer be lost.
                    asked.add(worker)
                return await self.ask_worker(view, pool, worker, request, budget)
            except NoWorker as error:
                if worker is not None:
                    # No pause and no retry: the next worker is asked at once, and one that lacks all workers
                    # waits below.
                    view.lose(worker)
                    request = _repeated(request)
                    continue
                lonely_since = lonely_since or clock.monotonic()
                if clock.monotonic() - lonely_since > NO_WORKER_GRACE_S:
                    raise NoWorker(
                        f"no worker serves {kind} '{pool}' since {NO_WORKER_GRACE_S:.0f} s; "
                        f"start one with: gym-runtime start {kind}",
                        stage=kind,
                    ) from error
                # A limit, because workers may serve the pool that this view has not heard of.
                with anyio.move_on_after(0.25):
                    await view.changed()
            except Busy as error:
                if worker is not None:
                    view.report(worker, 1.0)
                    if budget.deaths_of(call_name(kind, request)) >= ALONE_AT:
                        # That worker is being kept for this call; others need not be.
                        prefer = worker
                        pause_s = await _pause(pause_s, request.deadline_s, error)
                        continue
                    avoid.add(worker)
                if worker is None or avoid.issuperset(view.workers(pool)):
                    # All are full: after a pause any of them may have a place.
                    avoid.clear()
                    pause_s = await _pause(pause_s, request.deadline_s, error)
            except ConnectionLost as error:
                budget.spend(error)
                request = _repeated(request)
                pause_s = await _pause(pause_s, request.deadline_s, error)

    async def ask_session(
        self, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        """Ask the worker that holds a session.

        Raises:
            SessionLost: that worker is gone.
            GymError: as `ask`.
        """
        view = self.views["resource"]
        pause_s = RETRY_PAUSE_S[0]
        missing_since: float | None = None
        while True:
            try:
                return await self.ask_worker(view, pool, worker, request, budget)
            except NoWorker as error:
                # After a restart of the broker a worker is back a moment later than its callers.
                missing_since = missing_since or clock.monotonic()
                if view.knows(worker) and clock.monotonic() - missing_since < SESSION_GRACE_S:
                    await anyio.sleep(SESSION_GRACE_S / 5)
                    continue
                view.lose(worker)
                lost = SessionLost(
                    f"worker {worker} of resource '{pool}' is gone, and the session with it", stage="resource"
                )
                budget.lose(lost)
                raise lost from error
            except (Busy, ConnectionLost) as error:
                # A full worker costs no retry: it has done nothing, and the deadline ends the waiting.
                if isinstance(error, ConnectionLost):
                    budget.spend(error)
                    request = _repeated(request)
                pause_s = await _pause(pause_s, request.deadline_s, error)


def _repeated(request: Request[Any]) -> Request[Any]:
    """The request for its next delivery: the one before may have been worked on."""
    return request if request.repeated else msgspec.structs.replace(request, repeated=True)


async def _pause(pause_s: float, deadline_s: float, error: GymError) -> float:
    """Wait a jittered moment; returns how long to wait the next time."""
    wait_s = pause_s * random.uniform(0.5, 1.5)
    if clock.monotonic() + wait_s >= deadline_s:
        raise DeadlineExceeded(f"the deadline passed while retrying: {error.message}", stage=error.stage)
    await anyio.sleep(wait_s)
    return min(pause_s * 2, RETRY_PAUSE_S[1])
