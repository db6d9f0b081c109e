"""The caller's side of a hop: choose a worker, ask, and ask again where that may help.

One rollout has one budget of retries and one deadline, whatever hop needs them. A worker that does not
exist any more shows within milliseconds (no responders); a full one refuses at once; in both cases
another is asked. A call to a session goes to the session's worker and nowhere else: if that one is gone,
so is the state, and `SessionLost` says so. A worker that ends while it works on a call costs no retry; a call
that ends its workers is found out and asked no more (`gym_runtime.rpc.suspects`).
"""

from __future__ import annotations

import random
from contextlib import suppress

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Headers
from gym_runtime.errors import (
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    NoWorker,
    SessionLost,
    from_fault,
)
from gym_runtime.messages.calls import Request, decode_reply, encode
from gym_runtime.messages.names import token
from gym_runtime.messages.responses import NULL
from gym_runtime.rpc.in_flight import InFlightRequest, LostAnswers
from gym_runtime.rpc.members import Members
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.suspects import ALONE_AT, GROUP_AT, MAX_DEATHS, quarantined
from gym_runtime.timing import NO_WORKER_GRACE_S, RETRY_PAUSE_S, SESSION_GRACE_S


class RoutedReply(msgspec.Struct, frozen=True):
    """An answer's body and the worker that gave it."""

    body: Raw
    worker: str


class Router:
    """Requests to pools of workers over one bus.

    Args:
        kinds: the kinds of workers that it asks; all without any.
        own: the worker id of the agent worker that asks; empty for another caller.
        watches: it takes a share of the watch over the members (`gym_runtime.rpc.members`).

    Args:
        stored: learn from what the broker stores who is there; without, from what is heard.

    Attributes:
        members: who is alive.
        waiting: by rollout, the requests that it waits for, or waited for when it was stopped.
        meter: counts for the worker that asks.
    """

    def __init__(self, bus: Bus, *kinds: str, own: str = "", watches: bool = True) -> None:
        self.members = Members(bus, *kinds, own=own, watches=watches)
        self.views = self.members.views
        self.waiting: dict[str, list[InFlightRequest]] = {}
        self.meter = Meter()
        self._bus = bus
        self._lost = LostAnswers(bus, self.views, self.waiting)

    async def run(self) -> None:
        """Follow the workers, and whether requests are still worked on, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lost.watch)
            tasks.start_soon(self.members.follow)

    @property
    def bus(self) -> Bus:
        """What the requests go over."""
        return self._bus

    def slowest(self, rollout: str) -> InFlightRequest | None:
        """What a rollout has waited for longest."""
        return min(self.waiting.get(rollout, ()), key=lambda hop: hop.since_s, default=None)

    def settle(self, rollout: str) -> None:
        """A rollout waits for nothing any more."""
        self.waiting.pop(rollout, None)

    async def ask(
        self,
        kind: str,
        pool: str,
        request: Request,
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
            if asked is not None and worker is not None:
                asked.add(worker)
            try:
                answer = await self._ask_worker(view, pool, worker, request, budget)
                if asked is not None:
                    asked.add(answer.worker)
                return answer
            except NoWorker as error:
                if worker is not None:
                    view.lose(worker)
                    request = _repeated(request)
                    continue
                lonely_since = lonely_since or clock.now()
                if clock.now() - lonely_since > NO_WORKER_GRACE_S:
                    raise NoWorker(
                        f"no worker serves {kind} '{pool}' since {NO_WORKER_GRACE_S:.0f} s; "
                        f"start one with: gym-runtime start {kind}",
                        stage=kind,
                    ) from error
                with anyio.move_on_after(0.25):
                    await view.changed()
            except Busy as error:
                if worker is not None:
                    view.report(worker, 1.0)
                    if budget.deaths_of(_call(kind, request)) >= ALONE_AT:
                        # That worker is being kept for this call; others need not be.
                        prefer = worker
                        pause_s = await _pause(pause_s, request.deadline_s, error)
                        continue
                    avoid.add(worker)
                if worker is None or avoid.issuperset(view.workers(pool)):
                    avoid.clear()
                    pause_s = await _pause(pause_s, request.deadline_s, error)
            except ConnectionLost as error:
                budget.spend(error)
                request = _repeated(request)
                pause_s = await _pause(pause_s, request.deadline_s, error)

    async def ask_session(self, pool: str, worker: str, request: Request, budget: RetryBudget) -> RoutedReply:
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
                return await self._ask_worker(view, pool, worker, request, budget)
            except NoWorker as error:
                # After a restart of the broker a worker is back a moment later than its callers.
                missing_since = missing_since or clock.now()
                if view.knows(worker) and clock.now() - missing_since < SESSION_GRACE_S:
                    await anyio.sleep(SESSION_GRACE_S / 5)
                    continue
                view.lose(worker)
                lost = SessionLost(
                    f"worker {worker} of resource '{pool}' is gone, and the session with it", stage="resource"
                )
                budget.lose(lost)
                raise lost from error
            except (Busy, ConnectionLost) as error:
                if isinstance(error, ConnectionLost):
                    budget.spend(error)
                    request = _repeated(request)
                pause_s = await _pause(pause_s, request.deadline_s, error)

    async def tell(self, kind: str, pool: str, worker: str, request: Request) -> None:
        """Send a request without waiting for an answer."""
        subject = f"{kind}.{token(pool, kind)}.{token(worker, 'worker')}"
        await self._bus.publish(subject, encode(request), run=request.run)

    async def _ask_worker(
        self, view: WorkerRegistry, pool: str, worker: str | None, request: Request, budget: RetryBudget
    ) -> RoutedReply:
        call = _call(view.kind, request)
        deaths = budget.deaths_of(call)
        if deaths >= GROUP_AT:
            await self._find_place(view, pool, worker, request, deaths)
        payload = encode(
            msgspec.structs.replace(
                request,
                retries=max(0, budget.left),
                left_s=request.deadline_s - clock.now(),
                deaths=deaths,
            )
        )
        headers = tracing.headers()
        hop = InFlightRequest(view.kind, pool, worker, request.key)
        hops = self.waiting.setdefault(request.rollout, [])
        hops.append(hop)
        try:
            data = await self._exchange(view, hop, payload, request, headers)
        except anyio.get_cancelled_exc_class():
            await self._abort(view.kind, pool, worker, request)
            raise
        except DeadlineExceeded:
            await self._abort(view.kind, pool, worker, request)
            raise DeadlineExceeded(
                f"the deadline passed while waiting for {hop.name} since {hop.waited_s():.0f} s",
                stage=view.kind,
            ) from None
        except GymError:
            self._arrived(request.rollout, hops, hop)
            raise
        self._arrived(request.rollout, hops, hop)
        if data is None:
            raise self._unanswered(view, hop, budget, call)
        reply = decode_reply(data)
        if reply.fault is None or not reply.fault.retryable:
            budget.answered(call)
        view.report(reply.worker, reply.load)
        budget.take(reply.retries)
        if reply.fault is not None:
            raise from_fault(reply.fault)
        return RoutedReply(reply.body, reply.worker)

    async def _find_place(
        self, view: WorkerRegistry, pool: str, worker: str | None, request: Request, deaths: int
    ) -> None:
        """Have a suspect admitted; one for whom no worker is known waits for one.

        Raises:
            GymError: `Busy` while there is no place, and what else befalls a request.
        """
        if worker is None:
            raise NoWorker(f"no worker of {view.kind} '{pool}' is known", stage=view.kind)
        if not view.has_places(worker):
            return
        left_s = request.deadline_s - clock.now()
        asking = msgspec.structs.replace(request, body=NULL, left_s=left_s, deaths=deaths, place=True)
        hop = InFlightRequest(view.kind, pool, worker, "")
        data = await self._exchange(view, hop, encode(asking), asking, None)
        if data is None:
            raise NoWorker(f"{hop.name} is gone")
        reply = decode_reply(data)
        if reply.fault is not None:
            raise from_fault(reply.fault)

    def _arrived(self, rollout: str, hops: list[InFlightRequest], hop: InFlightRequest) -> None:
        hops.remove(hop)
        if not hops and self.waiting.get(rollout) is hops:
            del self.waiting[rollout]

    async def _exchange(
        self,
        view: WorkerRegistry,
        hop: InFlightRequest,
        payload: bytes,
        request: Request,
        headers: Headers | None,
    ) -> bytes | None:
        """The answer; None if the waiting for it was ended, because the worker or the answer is gone."""
        data: bytes | None = None
        if hop.worker is not None:
            view.begin(hop.worker, hop.scope)
        try:
            with hop.scope:
                data = await self._bus.request(
                    hop.subject, payload, deadline_s=request.deadline_s, headers=headers, run=request.run
                )
        finally:
            if hop.worker is not None:
                view.end(hop.worker, hop.scope)
        return data

    def _unanswered(
        self, view: WorkerRegistry, hop: InFlightRequest, budget: RetryBudget, call: str
    ) -> GymError:
        """What it means that a request has no answer: its worker ended, or lives and does not know of it."""
        if hop.lost:
            return ConnectionLost(f"the answer of {hop.name} was lost on its way", stage=hop.kind)
        if hop.worker is not None and not view.has_drained(hop.worker):
            deaths = budget.died(hop.worker, call)
            if deaths >= MAX_DEATHS:
                return quarantined(hop.kind, hop.pool)
        return NoWorker(f"{hop.name} is gone")

    async def _abort(self, kind: str, pool: str, worker: str | None, request: Request) -> None:
        """Stop the work on a request; when it is not known who has it, the whole pool is told."""
        whole = worker is None
        subject = f"abort.{kind}.{token(pool, kind)}" if whole else f"abort.{token(worker, 'worker')}"
        if request.key:
            # An error here must not take the place of the cancellation.
            with anyio.move_on_after(1, shield=True), suppress(GymError):
                await self._bus.publish(subject, request.key.encode())


def _call(kind: str, request: Request) -> str:
    """What names a call within its rollout, whichever attempt makes it."""
    return f"{kind}.{request.key.rpartition('.')[2]}"


def _repeated(request: Request) -> Request:
    """The request for its next delivery: the one before may have been worked on."""
    return request if request.repeated else msgspec.structs.replace(request, repeated=True)


async def _pause(pause_s: float, deadline_s: float, error: GymError) -> float:
    """Wait a jittered moment; returns how long to wait the next time."""
    wait_s = pause_s * random.uniform(0.5, 1.5)
    if clock.now() + wait_s >= deadline_s:
        raise DeadlineExceeded(f"the deadline passed while retrying: {error.message}", stage=error.stage)
    await anyio.sleep(wait_s)
    return min(pause_s * 2, RETRY_PAUSE_S[1])
