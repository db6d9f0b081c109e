"""Asking over the bus: choose a worker, ask it, and ask again where that may help.

One rollout has one budget of retries and one deadline for all its requests. The end of a worker is noticed
within milliseconds (no responders), and a full worker refuses at once; in both cases another worker
is asked. A call to a session goes to the session's worker and nowhere else: if that worker is gone, so is the
state, and `SessionLost` says so. A worker that ends while it works on a call costs no retry; a call that ends
its workers is found and no longer sent (`gym_runtime.rpc.quarantine`).

A request has no answer if its worker has ended, or does not know of it (`gym_runtime.rpc.lost`). It is
aborted when its caller is cancelled.

A worker that lives in this process is called (`gym_runtime.rpc.answer.Service.call`): that costs no message,
no encoding and no choice of a worker. The deadline of such a call is that of the caller's scope: of the
rollout's attempts, or of a question to a role. Four kinds of calls go over the bus although a worker of this
process could execute them: the worker is full or draining; another worker has the session or the
conversation; a call of the same rollout may have ended a worker, so that the router has to find out which
call it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Headers, Stopped
from gym_runtime.errors import (
    UNREADABLE,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    GymError,
    NoWorker,
    SessionLost,
    from_fault,
)
from gym_runtime.messages.calls import CloseSession, Request, RpcReply, decode_reply, encode_request
from gym_runtime.messages.names import token
from gym_runtime.messages.responses import NULL
from gym_runtime.retrying import Backoff, Pauses
from gym_runtime.rpc.actors import RoutedReply
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.closings import Closings
from gym_runtime.rpc.lost import InFlightRequest, LostAnswers, Pace
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.quarantine import ALONE_AT, MAX_DEATHS, MAX_KILLED, quarantined
from gym_runtime.rpc.registry import WorkerRegistry
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.rpc.watch import Members
from gym_runtime.timing import MEMBER_ANSWER_S, OUTAGE_S, REPLACED_S, RETRY_PAUSE_S

NO_WORKER_GRACE_S = 30.0
"""How long a request waits for any worker of its pool: a supervisor restarts a worker within a few
seconds, a model server restarts within half a minute."""
UNSERVED_S = 5.0
"""How long a pool has no worker until requests for it count as `Router.lonely`: a worker that is started
again is back in less."""
SESSION_GRACE_S = 1.0
"""How long a call to a session waits for a worker that the broker does not know: after a restart of the
broker a worker may connect shortly after its callers."""

_PAUSES = Pauses(*RETRY_PAUSE_S)


class Router:
    """Requests to pools of workers: `gym_runtime.rpc.actors.Actors`.

    Args:
        kinds: the kinds of workers that it asks; empty for all.
        own: the worker id of the agent worker that asks; empty for another caller.
        watches: it takes a share of the watch over the members (`gym_runtime.rpc.watch`).
        services: those of the workers that live in this process.

    Attributes:
        members: the members that are alive.
        views: the workers that are alive, by kind.
        waiting: the requests without an answer yet, in the order in which they began.
        lonely: how many requests wait for a worker of a pool that has had none for `UNSERVED_S`.
        paces: how long answers take, by kind and pool.
        meter: the counters of the asking worker.
    """

    def __init__(
        self, bus: Bus, *kinds: str, own: str = "", watches: bool = True, services: Sequence[Service] = ()
    ) -> None:
        self.members = Members(bus, *kinds, own=own, watches=watches)
        self.views = self.members.views
        self.waiting: dict[InFlightRequest, None] = {}
        self.lonely = 0
        self.paces: dict[tuple[str, str], Pace] = {}
        self.meter = Meter()
        self._bus = bus
        self._services = {(service.kind, pool): service for service in services for pool in service.pools}
        self._lost = LostAnswers(bus, self.waiting)
        self._closings = Closings(bus, self.views)

    def _over(self, hop: InFlightRequest, *, answered: bool) -> None:
        """A request no longer waits."""
        del self.waiting[hop]
        if answered:
            before = self.paces.get((hop.kind, hop.pool))
            slowest_s = max(hop.waited_s(), before.slowest_s if before else 0.0)
            self.paces[hop.kind, hop.pool] = Pace(slowest_s, clock.monotonic())

    async def run(self) -> None:
        """Follow the workers, and find lost answers, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lost.watch)
            tasks.start_soon(self._closings.run)
            tasks.start_soon(self.members.follow)

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

        ``prefer`` is asked first, if it is alive and takes new work.

        Raises:
            GymError: the worker's own fault, or the last transport error once the budget or
                ``NO_WORKER_GRACE_S`` without any worker is used up, or `DeadlineExceeded`.
        """
        service = self._called(kind, pool, prefer, budget)
        if service is not None:
            if asked is not None:
                asked.add(service.worker)
            return await self._call(service, pool, request, budget)
        view = self.views[kind]
        backoff = Backoff(_PAUSES)
        avoid: set[str] = set()
        lonely_since: float | None = None
        while True:
            worker = prefer if prefer not in avoid and view.serves(prefer, pool) else None
            if worker is None:
                worker = view.choose(pool, frozenset(avoid)) if avoid else view.choose(pool)
            try:
                if worker is None:
                    worker = await self._find_worker(view, pool, request, budget)
                lonely_since = None
                if asked is not None:
                    # Added before it is asked: it may act on the request even if its answer is lost.
                    asked.add(worker)
                return await self._ask_worker(view, pool, worker, request, budget)
            except NoWorker as error:
                if worker is not None:
                    # No pause and no retry: the next worker is asked at once; if there is none, the request
                    # waits below.
                    view.lose(worker)
                    request = _repeated(request)
                    continue
                lonely_since = lonely_since or clock.monotonic()
                # Workers can be missed only while there is a broker.
                lonely_s = clock.monotonic() - max(lonely_since, self._bus.connected_s)
                if lonely_s > NO_WORKER_GRACE_S:
                    blocked = view.last_blocked(pool)
                    start = f"start one with: gym-runtime start {kind}:{pool}"
                    why = f"the last was {blocked}" if blocked else start
                    raise NoWorker(
                        f"no worker serves {kind} '{pool}' since {NO_WORKER_GRACE_S:.0f} s; {why}", stage=kind
                    ) from error
                counted = lonely_s > UNSERVED_S
                self.lonely += counted
                try:
                    # A limit, because the pool may have workers that this view does not know yet.
                    with anyio.move_on_after(0.25):
                        await view.change().wait()
                finally:
                    self.lonely -= counted
            except Busy as error:
                lonely_since = None
                if worker is not None:
                    view.report(worker, 1.0)
                    if budget.deaths_of(_call_name(kind, request)) >= ALONE_AT:
                        # That worker keeps itself free for this call; another worker need not do so too.
                        prefer = worker
                        await _pause(backoff, request.deadline_s, error)
                        continue
                    avoid.add(worker)
                if worker is None or avoid.issuperset(view.workers(pool)):
                    # All workers are full: after a pause any of them may have a free place.
                    avoid.clear()
                    await _pause(backoff, request.deadline_s, error)
            except ConnectionLost as error:
                budget.spend(error)
                request = _repeated(request)
                await _pause(backoff, request.deadline_s, error)

    async def ask_session(
        self, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        """Ask the worker that holds a session.

        Raises:
            SessionLost: that worker is gone.
            GymError: as `ask`.
        """
        service = self._called("resource", pool, worker, budget)
        if service is not None:
            return await self._call(service, pool, request, budget)
        view = self.views["resource"]
        backoff = Backoff(_PAUSES)
        missing_since: float | None = None
        while True:
            try:
                return await self._ask_worker(view, pool, worker, request, budget)
            except NoWorker as error:
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
                await _pause(backoff, request.deadline_s, error)

    async def close_session(self, pool: str, worker: str, session: str) -> None:
        """Tell a worker that a session is over, without waiting for an answer."""
        service = self._services.get(("resource", pool))
        if service is not None and worker == service.worker and service.serving:
            service.post(pool, Request(body=CloseSession(session=session)))
        else:
            await self._closings.add(pool, worker, session)

    def weight_versions(self, pool: str) -> list[str]:
        """The versions of the weights that a model's workers have announced; empty texts for unknown ones."""
        workers = self.views["model"].alive()
        return [worker.detail.get("weight_version", "") for worker in workers if pool in worker.pools]

    def held(self, pool: str) -> str:
        """Why no worker of a model should be asked now; empty if one may be."""
        return self.views["model"].held(pool)

    async def room(self, pool: str) -> None:
        """Return when a worker of a model may be asked."""
        while self.held(pool):
            await self.views["model"].change().wait()

    def serves(self, kind: str, pool: str) -> bool:
        """Whether a worker of a pool is known."""
        return (kind, pool) in self._services or bool(self.views[kind].workers(pool))

    # -- one call to a worker of this process -------------------------------------------------------------

    def _called(self, kind: str, pool: str, worker: str, budget: RetryBudget) -> Service | None:
        """The service of this process that takes a call, to ``worker`` if one is named."""
        service = self._services.get((kind, pool))
        if service is None or worker not in ("", service.worker) or budget.suspects or not service.free:
            return None
        return service

    async def _call(
        self, service: Service, pool: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        hop = InFlightRequest(service.kind, pool, service.worker, "")  # its answer cannot be lost
        self.waiting[hop] = None
        budget.waited_for, answered = None, False
        try:
            reply = await service.call(pool, request, max(0, budget.left))
            answered = True
        except anyio.get_cancelled_exc_class():
            budget.note_wait(hop)
            raise
        finally:
            self._over(hop, answered=answered)
        return _taken(reply, budget)

    # -- one request to one worker ------------------------------------------------------------------------

    async def _ask_worker(
        self, view: WorkerRegistry, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        if self._bus.crowded:
            # Before anything is counted: the request waits for the connection here, not for the worker.
            await self._bus.ease(request.deadline_s)
        deaths = 0
        if budget.suspects:
            deaths = budget.deaths_of(_call_name(view.kind, request))
        if deaths >= ALONE_AT:
            await self._find_place(view, pool, worker, request, deaths)
        if view.is_gone(worker):
            # It may still take messages and answer none, if only its watchdog can end it. The call would wait
            # for that, and would count as one that the worker died of.
            raise NoWorker(f"{view.kind} '{pool}' (worker {worker}) is gone")
        sent = msgspec.structs.replace(request, retries=max(0, budget.left), deaths=deaths)
        headers = tracing.headers()
        hop = InFlightRequest(view.kind, pool, worker, request.key)
        self.waiting[hop] = None
        budget.waited_for = data = None
        try:
            data = await self._exchange(view, hop, sent, headers)
        except anyio.get_cancelled_exc_class():
            hop.blocked = view.blocked(worker)
            budget.note_wait(hop)
            await self._abort(worker, request)
            raise
        except DeadlineExceeded:
            hop.blocked = view.blocked(worker)
            await self._abort(worker, request)
            raise DeadlineExceeded(
                f"the deadline passed while waiting for {hop.name} since {hop.waited_s():.0f} s",
                stage=view.kind,
            ) from None
        finally:
            # Whatever ended the waiting, the router no longer asks workers about this request.
            self._over(hop, answered=data is not None)
        if data is None:
            raise await self._unanswered(view, hop, budget, sent)
        reply = _read(data, hop)
        # A retryable failure, such as a full worker, does not prove that a worker survives the call.
        if budget.suspects and (reply.fault is None or not reply.fault.retryable):
            budget.answered(_call_name(view.kind, request))
        view.report(reply.worker, reply.load)
        return _taken(reply, budget)

    async def _find_place(
        self, view: WorkerRegistry, pool: str, worker: str, request: Request[Any], deaths: int
    ) -> None:
        """Get a place for a suspected call.

        Raises:
            Busy: there is no place for it now.
            NoWorker, ConnectionLost, DeadlineExceeded: as for any request.
        """
        heartbeat = view.get(worker)
        if heartbeat is None or not heartbeat.places:
            return
        asking = msgspec.structs.replace(request, deaths=deaths, place=True)
        reply = await self._ask_before(view, InFlightRequest(view.kind, pool, worker, ""), asking)
        if reply.fault is not None:
            raise from_fault(reply.fault)

    async def _find_worker(
        self, view: WorkerRegistry, pool: str, request: Request[Any], budget: RetryBudget
    ) -> str:
        """Ask a pool for the name of one of its workers, if this caller knows none.

        The request itself is sent to that worker by name, so that the caller notices and counts the worker's
        end. A suspected call waits for a listed worker.

        Raises:
            NoWorker: the pool has no worker, or no worker answered.
            ConnectionLost, DeadlineExceeded: as for any request.
        """
        if budget.deaths_of(_call_name(view.kind, request)) >= ALONE_AT:
            raise NoWorker(f"no worker of {view.kind} '{pool}' is known", stage=view.kind)
        # A short deadline: a frozen worker must not hold the question; another may answer the next one.
        deadline_s = min(request.deadline_s, clock.monotonic() + MEMBER_ANSWER_S)
        # A request without a key asks for no place, so the worker goes on taking other calls.
        asking = msgspec.structs.replace(request, key="", deadline_s=deadline_s, place=True)
        hop = InFlightRequest(view.kind, pool, "", "")
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
        # Without the body: it may be large, and the worker may be full.
        asking = msgspec.structs.replace(asking, body=NULL)
        data = await self._exchange(view, hop, asking, None)
        if data is None:
            raise NoWorker(f"{hop.name} is gone")
        return _read(data, hop)

    async def _exchange(
        self,
        view: WorkerRegistry,
        hop: InFlightRequest,
        request: Request[Any],
        headers: Headers | None,
    ) -> bytes | None:
        """The answer; None if the waiting was stopped because the worker or the answer is lost."""
        heartbeat = view.get(hop.worker) if hop.worker else None
        if hop.worker:
            view.begin(hop.worker, hop)
        try:
            # The encoded request has no name here, so that its memory is free while the answer is awaited.
            return await self._bus.request(
                hop.subject,
                encode_request(request, names_images=heartbeat is not None and heartbeat.names_images),
                deadline_s=request.deadline_s,
                headers=headers,
                run=request.run,
                stop=hop,
            )
        except Stopped:
            return None
        finally:
            if hop.worker:
                view.end(hop.worker, hop)

    async def _unanswered(
        self, view: WorkerRegistry, hop: InFlightRequest, budget: RetryBudget, request: Request[Any]
    ) -> GymError:
        """The error for a request without an answer: its worker ended, or is alive but does not know it."""
        # A worker that is no longer listed has ended, as far as its caller can tell.
        if hop.lost and view.knows(hop.worker):
            return ConnectionLost(f"the answer of {hop.name} was lost on its way", stage=hop.kind)
        # A worker that drained ended as announced, so that no call of it is suspected; nor is one of a worker
        # that an outage of the broker cut off.
        outage = clock.monotonic() < self._bus.connected_s + OUTAGE_S
        if not outage and not view.has_drained(hop.worker):
            deaths = budget.died(hop.worker, _call_name(view.kind, request))
            # Another call of the rollout may be suspected, and this one not have been alone.
            suspect = deaths >= MAX_DEATHS and request.deaths >= ALONE_AT
            spared = deaths < MAX_KILLED and suspect and await _killed(view, hop.worker, request.deadline_s)
            if suspect and not spared:
                return quarantined(hop.kind, hop.pool, deaths)
        return NoWorker(f"{hop.name} is gone")

    async def _abort(self, worker: str, request: Request[Any]) -> None:
        """Stop the work on a request."""
        if request.key:
            # An error here must not replace the cancellation.
            with anyio.move_on_after(1, shield=True), suppress(GymError):
                await self._bus.publish(f"abort.{token(worker, 'worker')}", request.key.encode())


async def _killed(view: WorkerRegistry, worker: str, deadline_s: float) -> bool:
    """Whether a lost worker was ended from outside, according to its replacement, which is waited for."""
    with anyio.move_on_after(max(0.0, min(REPLACED_S, deadline_s - clock.monotonic()))):
        while True:
            changed = view.change()
            for one in view.alive():
                if worker in (one.crashed, one.killed):
                    return worker == one.killed
            await changed.wait()
    return False


def _read(data: bytes, hop: InFlightRequest) -> RpcReply:
    try:
        return decode_reply(data)
    except UNREADABLE as error:
        # As for one that was lost: asked again, the worker may answer in a form that can be read.
        raise ConnectionLost(f"the answer of {hop.name} cannot be read: {error}", stage=hop.kind) from error


def _taken(reply: RpcReply, budget: RetryBudget) -> RoutedReply:
    """What an answer costs the rollout is counted, also that of a failed call; then it counts."""
    budget.take(reply.retries)
    budget.note_role_use(reply.role_use)
    if reply.fault is not None:
        raise from_fault(reply.fault)
    return RoutedReply(reply.body, reply.worker)


def _call_name(kind: str, request: Request[Any]) -> str:
    """The name of a call within its rollout; the same in every attempt."""
    return f"{kind}.{request.key.rpartition('.')[2]}"


def _repeated(request: Request[Any]) -> Request[Any]:
    """The request for its next delivery, marked as repeated: a worker may have executed the previous one."""
    return request if request.repeated else msgspec.structs.replace(request, repeated=True)


async def _pause(backoff: Backoff, deadline_s: float, error: GymError) -> None:
    wait_s = backoff.next_s()
    if clock.monotonic() + wait_s >= deadline_s:
        raise DeadlineExceeded(f"the deadline passed while retrying: {error.message}", stage=error.stage)
    await anyio.sleep(wait_s)
