"""The model worker: one adapter behind a service, and the one place where engines are asked again.

What an engine refused for good is never asked again. Overload and broken connections are, with jittered
pauses that honour what the engine asks for, a bounded number of times and only before the deadline.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import anyio
from msgspec import Raw

from gym_runtime import clock, tracing
from gym_runtime.bus.contract import Bus
from gym_runtime.errors import ModelUnavailable
from gym_runtime.logs import logger
from gym_runtime.messages import calls
from gym_runtime.model import Adapter, CallContext
from gym_runtime.workers.service import Service

MAX_TRIES = 8
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0


class ModelWorker:
    """Answers the calls to one model.

    Args:
        worker: this worker's id.
        pools: the names it serves, such as ``policy``.
        adapter: the engine; entered by the caller.
        capacity: calls in progress at most.
    """

    def __init__(
        self, bus: Bus, *, worker: str, pools: Sequence[str], adapter: Adapter, capacity: int
    ) -> None:
        self._adapter = adapter
        self.service = Service(
            bus, kind="model", worker=worker, pools=pools, capacity=capacity, handle=self._handle
        )

    async def run(self, *, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        await self.service.run(ready=ready)

    async def _handle(self, pool: str, request: calls.Request) -> Raw:
        call = calls.decode_model_call(request.body)
        context = CallContext(
            rollout=request.rollout,
            attempt=request.attempt,
            deadline_s=request.deadline_s,
            headers=tracing.headers() or {},
        )
        pause_s = FIRST_PAUSE_S
        for tries in range(1, MAX_TRIES + 1):
            try:
                return calls.pack(await self._adapter.respond(call, context))
            except ModelUnavailable as error:
                wait_s = max(error.retry_after_s or 0.0, pause_s * random.uniform(0.5, 1.5))
                if tries == MAX_TRIES or clock.now() + wait_s >= request.deadline_s:
                    raise
                logger().info("the engine is asked again", error=str(error))
                await anyio.sleep(wait_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        raise AssertionError("MAX_TRIES is at least 1")
