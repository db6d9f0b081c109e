"""One request to one worker: it is sent, waited for, and aborted when its caller is not there any more.

A request has no answer where its worker has ended, or does not know of it (`gym_runtime.rpc.in_flight`).
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Headers, Stopped
from gym_runtime.errors import ConnectionLost, DeadlineExceeded, GymError, NoWorker, from_fault
from gym_runtime.messages.calls import Request, RpcReply, decode_reply, encode_request
from gym_runtime.messages.names import token
from gym_runtime.messages.responses import NULL
from gym_runtime.rpc.closings import Closings
from gym_runtime.rpc.in_flight import InFlightRequest, LostAnswers
from gym_runtime.rpc.members import Members
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.suspects import ALONE_AT, MAX_DEATHS, quarantined
from gym_runtime.timing import MEMBER_ANSWER_S

GIVEN_UP_KEPT = 4096
"""Rollouts that were cancelled, of which it is known what they waited for."""


class RoutedReply(msgspec.Struct, frozen=True):
    """An answer's body and the worker that gave it."""

    body: Raw
    worker: str


class Exchanges:
    """Requests to single workers over one bus; `gym_runtime.rpc.router` chooses which, and asks again."""

    def __init__(self, bus: Bus, *kinds: str, own: str = "", watches: bool = True) -> None:
        self.members = Members(bus, *kinds, own=own, watches=watches)
        self.views = self.members.views
        self.waiting: dict[str, list[InFlightRequest]] = {}
        self.meter = Meter()
        self._bus = bus
        self._explained: set[str] = set()
        self._given_up: OrderedDict[str, InFlightRequest] = OrderedDict()
        self._lost = LostAnswers(bus, self.views, self.waiting)
        self.closings = Closings(bus, self.views)

    async def run(self) -> None:
        """Follow the workers, and whether requests are still worked on, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lost.watch)
            tasks.start_soon(self.closings.run)
            tasks.start_soon(self.members.follow)

    @property
    def bus(self) -> Bus:
        """What the requests go over."""
        return self._bus

    def slowest(self, rollout: str) -> InFlightRequest | None:
        """What a rollout waits for longest, or waited for when it was cancelled."""
        waiting = self.waiting.get(rollout, ())
        return min(waiting, key=lambda hop: hop.since_s, default=self._given_up.get(rollout))

    def settle(self, rollout: str) -> None:
        """Forget what a rollout that has ended waited for."""
        self._given_up.pop(rollout, None)

    async def ask_worker(
        self, view: WorkerRegistry, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        if self._bus.crowded:
            # Here, before anything is counted: it does not wait for the worker yet.
            await self._bus.ease(request.deadline_s)
        deaths = 0
        if budget.suspects:
            budget.explain(self._explained)
            deaths = budget.deaths_of(call_name(view.kind, request))
        if deaths >= ALONE_AT:
            await self._find_place(view, pool, worker, request, deaths)
        sent = msgspec.structs.replace(
            request,
            retries=max(0, budget.left),
            deaths=deaths,
        )
        headers = tracing.headers()
        hop = InFlightRequest(view.kind, pool, worker, request.key)
        hops = self.waiting.setdefault(request.rollout, [])
        hops.append(hop)
        self._given_up.pop(request.rollout, None)
        try:
            data = await self._exchange(view, hop, sent, headers)
        except anyio.get_cancelled_exc_class():
            # If the rollout's deadline has cancelled it, its error names what it waited for (`slowest`).
            self._give_up(request.rollout, hop)
            await self._abort(worker, request)
            raise
        except DeadlineExceeded:
            await self._abort(worker, request)
            raise DeadlineExceeded(
                f"the deadline passed while waiting for {hop.name} since {hop.waited_s():.0f} s",
                stage=view.kind,
            ) from None
        finally:
            # Whatever ended the waiting: workers are not asked any more about a request without a caller.
            self._remove(request.rollout, hops, hop)
        if data is None:
            raise self._unanswered(view, hop, budget, request)
        reply = decode_reply(data)
        # A retryable failure (a full worker) does not show that the call can be executed.
        if budget.suspects and (reply.fault is None or not reply.fault.retryable):
            budget.answered(call_name(view.kind, request))
        view.report(reply.worker, reply.load)
        budget.take(reply.retries)
        budget.note_role_use(reply.role_use)
        # After the counting above: a failed call has taken retries and asked roles, too.
        if reply.fault is not None:
            raise from_fault(reply.fault)
        return RoutedReply(reply.body, reply.worker)

    async def _find_place(
        self, view: WorkerRegistry, pool: str, worker: str, request: Request[Any], deaths: int
    ) -> None:
        """Have a suspect admitted.

        Raises:
            Busy: there is no place for it now.
            NoWorker, ConnectionLost, DeadlineExceeded: as for any request.
        """
        if not view.has_places(worker):
            return
        asking = msgspec.structs.replace(request, deaths=deaths, place=True)
        reply = await self._ask_before(view, InFlightRequest(view.kind, pool, worker, ""), asking)
        if reply.fault is not None:
            raise from_fault(reply.fault)

    async def find_worker(
        self, view: WorkerRegistry, pool: str, request: Request[Any], budget: RetryBudget
    ) -> str:
        """The name of a worker of a pool of which this caller knows no worker.

        The request itself goes to a worker that is named: if that one ends, the caller notices it, and
        counts its end. A suspect waits for a listed worker.

        Raises:
            NoWorker: the pool has no worker, or no worker answered.
            ConnectionLost, DeadlineExceeded: as for any request.
        """
        if budget.deaths_of(call_name(view.kind, request)) >= ALONE_AT:
            raise NoWorker(f"no worker of {view.kind} '{pool}' is known", stage=view.kind)
        # A frozen worker must not hold the question until it is declared gone; another may answer the next.
        deadline_s = min(request.deadline_s, clock.monotonic() + MEMBER_ANSWER_S)
        # Without a key it asks for no place, so the worker takes other calls as before.
        asking = msgspec.structs.replace(request, key="", deadline_s=deadline_s, place=True)
        hop = InFlightRequest(view.kind, pool, None, "")
        try:
            worker = (await self._ask_before(view, hop, asking)).worker
        except DeadlineExceeded:
            if clock.monotonic() >= request.deadline_s:
                what = f"the deadline passed while waiting for {hop.name}"
                raise DeadlineExceeded(what, stage=view.kind) from None
            raise NoWorker(f"no worker of {hop.name} answered", stage=view.kind) from None
        view.meet(worker, pool)
        return worker

    async def _ask_before(self, view: WorkerRegistry, hop: InFlightRequest, asking: Request[Any]) -> RpcReply:
        """The answer to a question that comes before a request."""
        # Without the body: a large one need not travel to a worker that may be full.
        asking = msgspec.structs.replace(asking, body=NULL)
        data = await self._exchange(view, hop, asking, None)
        if data is None:
            raise NoWorker(f"{hop.name} is gone")
        return decode_reply(data)

    def _remove(self, rollout: str, hops: list[InFlightRequest], hop: InFlightRequest) -> None:
        hops.remove(hop)
        # When the list was empty before, another one may stand under this name by now.
        if not hops and self.waiting.get(rollout) is hops:
            del self.waiting[rollout]

    def _give_up(self, rollout: str, hop: InFlightRequest) -> None:
        longest = self._given_up.get(rollout)
        if longest is None or hop.since_s < longest.since_s:
            self._given_up[rollout] = hop
        # Only agent workers say when a rollout has ended.
        while len(self._given_up) > GIVEN_UP_KEPT:
            self._given_up.popitem(last=False)

    async def _exchange(
        self,
        view: WorkerRegistry,
        hop: InFlightRequest,
        request: Request[Any],
        headers: Headers | None,
    ) -> bytes | None:
        """The answer; None if the waiting for it was ended, because the worker or the answer is gone."""
        if hop.worker is not None:
            view.begin(hop.worker, hop)
        try:
            # No name here for what is sent: a large request is not held while its answer is awaited.
            return await self._bus.request(
                hop.subject,
                encode_request(request),
                deadline_s=request.deadline_s,
                headers=headers,
                run=request.run,
                stop=hop,
            )
        except Stopped:
            return None
        finally:
            if hop.worker is not None:
                view.end(hop.worker, hop)

    def _unanswered(
        self, view: WorkerRegistry, hop: InFlightRequest, budget: RetryBudget, request: Request[Any]
    ) -> GymError:
        """What it means that a request has no answer: its worker ended, or lives and does not know of it."""
        # One that is not listed any more has ended, as far as its caller can tell.
        if hop.lost and (hop.worker is None or view.knows(hop.worker)):
            return ConnectionLost(f"the answer of {hop.name} was lost on its way", stage=hop.kind)
        # A worker that drained ended as announced, so that no call of it is suspected.
        if hop.worker is not None and not view.has_drained(hop.worker):
            deaths = budget.died(hop.worker, call_name(view.kind, request))
            if deaths >= MAX_DEATHS:
                self._explained.update(budget.dead)
                return quarantined(hop.kind, hop.pool)
        return NoWorker(f"{hop.name} is gone")

    async def _abort(self, worker: str, request: Request[Any]) -> None:
        """Stop the work on a request."""
        if request.key:
            # An error here must not take the place of the cancellation.
            with anyio.move_on_after(1, shield=True), suppress(GymError):
                await self._bus.publish(f"abort.{token(worker, 'worker')}", request.key.encode())


def call_name(kind: str, request: Request[Any]) -> str:
    """What names a call within its rollout, whichever attempt makes it."""
    return f"{kind}.{request.key.rpartition('.')[2]}"
