"""Asking actors of which some live in this process: these are called, the others are asked over the bus.

A call in the process costs no message, no encoding and no choice of a worker. It keeps the laws of
`gym_runtime.rpc.actors`: the budget, the cancellation, the fault and the span are those of a request over the
bus, and the worker counts and limits both together. The deadline is that of the caller's scope: of the
rollout's attempts, or of a question to a role.

Four kinds of calls go over the bus although a worker of this process could execute them: the worker is full
or draining; another worker has the session or the conversation; a call of the same rollout may have ended a
worker, so that the router has to find out which call it was (`gym_runtime.rpc.quarantine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from gym_runtime.errors import from_fault
from gym_runtime.messages.calls import CloseSession, Request
from gym_runtime.rpc.actors import RoutedReply
from gym_runtime.rpc.answer import Service
from gym_runtime.rpc.ask import Router
from gym_runtime.rpc.lost import InFlightRequest
from gym_runtime.rpc.retry_budget import RetryBudget


class Near:
    """The actors that one worker asks: `gym_runtime.rpc.actors.Actors`.

    Args:
        router: asks over the bus.
        services: those of the workers that live in this process.

    Attributes:
        meter: the counters of the asking worker.
    """

    def __init__(self, router: Router, services: Sequence[Service] = ()) -> None:
        self.meter = router.meter
        self._router = router
        self._services = {(service.kind, pool): service for service in services for pool in service.pools}

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
        """Ask any actor of a pool; one of this process if it can take the call."""
        service = self._services.get((kind, pool))
        if service is None or prefer not in ("", service.worker) or budget.suspects or not service.free:
            return await self._router.ask(kind, pool, request, budget, asked=asked, prefer=prefer)
        if asked is not None:
            asked.add(service.worker)
        return await self._call(service, pool, request, budget)

    async def ask_session(
        self, pool: str, worker: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        """Ask the worker that holds a session."""
        service = self._services.get(("resource", pool))
        if service is None or worker != service.worker or budget.suspects or not service.free:
            return await self._router.ask_session(pool, worker, request, budget)
        return await self._call(service, pool, request, budget)

    async def close_session(self, pool: str, worker: str, session: str) -> None:
        """Tell a worker that a session is over, without waiting for an answer."""
        service = self._services.get(("resource", pool))
        if service is None or worker != service.worker or not service.serving:
            return await self._router.close_session(pool, worker, session)
        return service.post(pool, Request(body=CloseSession(session=session)))

    def weight_versions(self, pool: str) -> list[str]:
        """The versions of the weights that a model's workers have announced; empty texts for unknown ones."""
        return self._router.weight_versions(pool)

    def held(self, pool: str) -> str:
        """Why no worker of a model should be asked now; empty if one may be."""
        return self._router.held(pool)

    async def room(self, pool: str) -> None:
        """Return when a worker of a model may be asked."""
        await self._router.room(pool)

    async def _call(
        self, service: Service, pool: str, request: Request[Any], budget: RetryBudget
    ) -> RoutedReply:
        hop = InFlightRequest(service.kind, pool, service.worker, "")  # its answer cannot be lost
        self._router.waiting[hop] = None
        budget.waited_for, answered = None, False
        try:
            reply = await service.call(pool, request, max(0, budget.left))
            answered = True
        except anyio.get_cancelled_exc_class():
            # If the rollout's deadline has cancelled it, its error names what it waited for longest.
            if budget.waited_for is None or hop.since_s < budget.waited_for.since_s:
                budget.waited_for = hop
            raise
        finally:
            self._router.over(hop, answered=answered)
        budget.take(reply.retries)
        budget.note_role_use(reply.role_use)
        # After the counting above: a failed call, too, has taken retries and asked roles.
        if reply.fault is not None:
            raise from_fault(reply.fault)
        return RoutedReply(reply.body, reply.worker)
