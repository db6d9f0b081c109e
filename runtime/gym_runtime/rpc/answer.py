"""The worker's side of a request: admission, deadline, cancellation, answer.

A service answers requests on ``<kind>.<pool>.<worker>`` for each of its pools and, shared with its peers, on
``<kind>.<pool>``. On ``holds.<worker>`` it answers which of the listed requests it is not executing. A
request above the capacity is refused with `Busy` at once, unless its sender waits for no answer and so could
not send it again. A request whose deadline has passed is not executed. ``abort.<worker>`` and
``abort.<kind>.<pool>`` cancel a request by its key. A request that several workers in a row did not survive
is executed apart from the others (`gym_runtime.rpc.quarantine`).

A caller in the same process calls the service (`Service.call`) instead of sending it a message
(`gym_runtime.rpc.ask`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.interface import Bus, Headers, Incoming
from gym_runtime.cancellation import asked_for, raised_at
from gym_runtime.errors import (
    UNREADABLE,
    Busy,
    DeadlineExceeded,
    GymError,
    ModelError,
    ResourceError,
    RuntimeFault,
    described,
)
from gym_runtime.logs import logger, set_rollout
from gym_runtime.messages.calls import Request, RpcReply, encode, receive_request
from gym_runtime.messages.metric_names import REFUSED
from gym_runtime.messages.names import token
from gym_runtime.messages.stored_records import leave_out
from gym_runtime.rpc.lost import decode_keys, encode_keys
from gym_runtime.rpc.meter import Meter
from gym_runtime.rpc.quarantine import ALONE_AT, CallPlace
from gym_runtime.rpc.retry_budget import RetryBudget
from gym_runtime.task_pool import TaskPool
from gym_runtime.timing import EXACT_S, OVERDUE_S

Handle = Callable[[str, Request[Any], RetryBudget], Awaitable[Raw]]
# For a request that does not say how many retries its rollout has left.
MAX_RETRIES = 8


# `eq=False`: compared by identity, as `list.remove` needs it.
class _Working(msgspec.Struct, frozen=True, eq=False):
    """A request in progress."""

    scope: anyio.CancelScope
    due_s: float
    """When its deadline passes, by `gym_runtime.clock.monotonic`."""


class Service:
    """One worker's answers to one kind of request.

    Args:
        kind: ``model`` or ``resource``.
        worker: this worker's id, unique in the system.
        pools: the names it serves.
        capacity: the maximum number of requests in progress.
        handle: called with the pool's name, the request and its budget of retries; returns the answer's body.

    Attributes:
        serving: requests can arrive.
        meter: the worker's counters.
        traced: name, kind and attributes of the spans of its requests; None for the usual ones.
    """

    def __init__(
        self, bus: Bus, *, kind: str, worker: str, pools: Sequence[str], capacity: int, handle: Handle
    ) -> None:
        self.kind = kind
        self.worker = worker
        self.pools = tuple(pools)
        self.capacity = capacity
        self.serving = False
        self.in_use = 0
        self.extra_load = 0.0
        self.meter = Meter()
        self.traced: tuple[str, tracing.Kind, tracing.Attributes] | None = None
        self._bus = bus
        self._handle = handle
        self._fault = ModelError if kind == "model" else ResourceError
        self._working: dict[str, list[_Working]] = {}
        self._idle = anyio.Event()
        self._alone = CallPlace()
        self._tasks: TaskPool | None = None
        # Built once: a worker refuses most requests when it has the least time.
        self._busy_fault = Busy(f"worker {worker} is at its capacity of {capacity}").fault()

    @property
    def load(self) -> float:
        """0 when idle, 1 when full."""
        return min(1.0, max(self.in_use / self.capacity, self.extra_load))

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Serve until cancelled; ``ready`` is called once requests can arrive.

        Raises:
            UsageError: the name of the worker or of a pool cannot be a token of a subject.
            RuntimeFault: the service ended, though it was not cancelled.
        """
        # The group is entered first, so that it outlives the subscriptions.
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            tasks = self._tasks = TaskPool(group)
            group.start_soon(self._end_overdue)

            def receive(incoming: Incoming) -> None:
                self._receive(tasks, incoming)

            def held(incoming: Incoming) -> None:
                tasks.start_soon(self._say_unknown, incoming)

            worker = token(self.worker, "worker")
            await stack.enter_async_context(self._bus.serve(f"abort.{worker}", self._abort))
            await stack.enter_async_context(self._bus.serve(f"holds.{worker}", held))
            await stack.enter_async_context(self._bus.serve(f"{self.kind}.*.{worker}", receive))
            for pool in self.pools:
                subject = f"{self.kind}.{token(pool, self.kind)}"
                await stack.enter_async_context(self._bus.serve(f"abort.{subject}", self._abort))
                # Last: requests of this pool arrive from here on, and aborts must already be heard.
                await stack.enter_async_context(self._bus.serve(subject, receive, queue=subject))
            self.serving = True
            ready()
            try:
                await anyio.sleep_forever()
            finally:
                self.serving = False
        # Something called asyncio's ``cancel`` on one of the group's tasks, which ends the group in silence.
        raise RuntimeFault(f"the service of {self.kind} worker {self.worker} ended by itself")

    async def drained(self) -> None:
        """Return when nothing is in progress."""
        while self.in_use:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _receive(self, tasks: TaskPool, incoming: Incoming) -> None:
        try:
            request = receive_request(incoming.payload)
        except UNREADABLE as error:
            leave_out(incoming.subject, f"a request cannot be decoded: {error}")
            return
        pool = incoming.subject.split(".", 2)[1]
        if request.deadline_s <= clock.monotonic():
            tasks.start_soon(self._answer, incoming, self._too_late(pool), request.run)
            return
        if request.place:
            tasks.start_soon(self._answer, incoming, self._place(request), request.run)
            return
        if request.deaths >= ALONE_AT:
            refused = not self._alone.begin(request.key)
        else:
            refused = self.in_use >= self.capacity or self._alone.closed
        if refused and incoming.reply:
            self.meter.add(REFUSED, self.kind)
            busy = RpcReply(fault=self._busy_fault, worker=self.worker, load=1)
            tasks.start_soon(self._answer, incoming, busy, request.run)
            return
        # Counted here, not in the task: several messages from one read would all see the same free place.
        self.in_use += 1
        tasks.start_in_scope(self._serve, tasks, pool, request, incoming)

    async def _say_unknown(self, incoming: Incoming) -> None:
        """Answer which of the listed requests this worker is not executing."""
        try:
            unknown = [key for key in decode_keys(incoming.payload) if key not in self._working]
            await self._bus.publish(incoming.reply, encode_keys(unknown))
        except (GymError, *UNREADABLE) as error:
            logger().warning(
                "a caller's question about its requests was not answered",
                subject=incoming.subject,
                error=str(error),
            )

    def _abort(self, incoming: Incoming) -> None:
        for working in self._working.get(incoming.payload.decode(errors="replace"), ()):
            working.scope.cancel()

    async def _end_overdue(self) -> None:
        while True:
            # One timer for all long deadlines, see `EXACT_S`.
            await anyio.sleep(OVERDUE_S)
            now_s = clock.monotonic()
            for requests in self._working.values():
                for working in requests:
                    if working.due_s <= now_s:
                        working.scope.cancel()

    async def _serve(
        self, scope: anyio.CancelScope, tasks: TaskPool, pool: str, request: Request[Raw], incoming: Incoming
    ) -> None:
        # The reply subject is unique, so a request without a key is not mistaken for another.
        key = request.key or incoming.reply
        working = self._begin(scope, key, request.deadline_s)
        try:
            set_rollout(request.rollout, request.attempt)
            reply = await self._work(pool, request, self._continued_span(pool, request, incoming.headers))
        except anyio.get_cancelled_exc_class():
            # An aborted request gets no answer, nor does any request when the worker ends.
            overdue = anyio.current_time() >= scope.deadline or clock.monotonic() >= working.due_s
            if scope.cancel_called and overdue:
                tasks.start_soon(self._answer, incoming, self._too_late(pool), request.run)
            raise
        finally:
            scope.deadline = math.inf
            self._end(working, key)
            if request.deaths >= ALONE_AT:
                self._alone.end(request.key)
        # An abort that came too late must not keep the answer.
        if scope.cancel_called:
            tasks.start_soon(self._answer, incoming, reply, request.run)
        else:
            await self._answer(incoming, reply, request.run)

    # -- a caller in this process -------------------------------------------------------------------------

    @property
    def free(self) -> bool:
        """Whether it takes another call now."""
        return self.serving and self.in_use < self.capacity and not self._alone.closed

    async def call(self, pool: str, request: Request[Any], retries: int) -> RpcReply:
        """Execute a request of a caller in this process, while the service is `free`.

        The caller's own scope limits its time; a scope for each call would cost 5 µs.

        Args:
            request: its body is not encoded.
            retries: how many the caller's rollout has left.
        """
        self.in_use += 1
        try:
            return await self._work(pool, request, self._child_span(pool, request), retries)
        finally:
            self._finish()

    def post(self, pool: str, request: Request[Any]) -> None:
        """Have a request of a caller in this process executed soon, while the service is `serving`; nothing
        waits for its answer.
        """
        assert self._tasks is not None
        self._tasks.start_soon(self._work, pool, request, nullcontext())

    # -- one request --------------------------------------------------------------------------------------

    def _begin(self, scope: anyio.CancelScope, key: str, deadline_s: float) -> _Working:
        left_s = deadline_s - clock.monotonic()
        if left_s < EXACT_S:
            scope.deadline = anyio.current_time() + left_s
        working = _Working(scope, deadline_s)
        # A list: a request that was sent again may arrive while the first one is still worked on.
        self._working.setdefault(key, []).append(working)
        return working

    def _end(self, working: _Working, key: str) -> None:
        same = self._working[key]
        same.remove(working)
        if not same:
            del self._working[key]
        self._finish()

    def _finish(self) -> None:
        self.in_use -= 1
        if not self.in_use:
            self._idle.set()

    def _place(self, request: Request[Raw]) -> RpcReply:
        # A request without a key asks only which worker serves the pool.
        if not request.key or self._alone.admit(request.key, self.in_use):
            return RpcReply(worker=self.worker, load=self.load)
        return RpcReply(fault=self._busy_fault, worker=self.worker, load=1)

    async def _work(
        self,
        pool: str,
        request: Request[Any],
        span: AbstractContextManager[None],
        retries: int | None = None,
    ) -> RpcReply:
        retries = request.retries if retries is None else retries
        budget = RetryBudget(MAX_RETRIES if retries is None else retries)
        try:
            with span:
                try:
                    body = await self._handle(pool, request, budget)
                # Every request is answered. Where an author's code runs, `contained` has named the place
                # already; here it would cost 2 µs for each request.
                except anyio.get_cancelled_exc_class() as error:
                    if asked_for():
                        raise
                    what = "it was cancelled, and the runtime had cancelled nothing"
                    raise self._fault(what, stage=self.kind) from error
            return RpcReply(
                body=body,
                worker=self.worker,
                load=self.load,
                retries=budget.spent,
                role_use=budget.role_use,
            )
        except GymError as error:
            return self._failure(error, budget)
        # A worker's handler boundary: one bad call ends no worker, nor does `sys.exit` in an adapter.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            logger().exception("a handler raised", kind=self.kind, pool=pool)
            place = raised_at(error.__traceback__ and error.__traceback__.tb_next)
            return self._failure(RuntimeFault(f"{described(error)} ({place})"), budget)

    def _continued_span(
        self, pool: str, request: Request[Any], headers: Headers | None
    ) -> AbstractContextManager[None]:
        if not headers:
            return nullcontext()
        name, kind, attributes = self._about(pool, request)
        return tracing.continued(name, headers, attributes, kind=kind)

    def _child_span(self, pool: str, request: Request[Any]) -> AbstractContextManager[None]:
        if not tracing.recording():
            return nullcontext()
        name, kind, attributes = self._about(pool, request)
        return tracing.span(name, attributes, kind=kind)

    def _about(self, pool: str, request: Request[Any]) -> tuple[str, tracing.Kind, tracing.Attributes]:
        name, kind, attributes = self.traced or (f"{self.kind} {pool}", "server", {})
        more = {"gym.worker": self.worker, "gym.pool": pool, "gen_ai.conversation.id": request.rollout}
        return name, kind, {**attributes, **more}

    def _failure(self, error: GymError, budget: RetryBudget | None = None) -> RpcReply:
        if not error.stage:
            error.stage = self.kind
        budget = budget or RetryBudget(0)
        return RpcReply(
            fault=error.fault(),
            worker=self.worker,
            load=self.load,
            retries=budget.spent,
            role_use=budget.role_use,
        )

    def _too_late(self, pool: str) -> RpcReply:
        return self._failure(DeadlineExceeded(f"the deadline passed in {self.kind} '{pool}'"))

    async def _answer(self, incoming: Incoming, reply: RpcReply, run: str) -> None:
        if not incoming.reply:
            return
        try:
            await self._bus.publish(incoming.reply, encode(reply), run=run)
        except GymError as error:
            logger().warning("an answer was not delivered", error=str(error))
            # An answer that is too large is replaced by its error, or the caller would wait for its deadline.
            if reply.fault is None:
                await self._answer(incoming, self._failure(error), run)
