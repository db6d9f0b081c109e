"""A model that a client's own process serves to the system, such as the engine of a trainer."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.bus.nats import connect as connect_bus
from gym_runtime.client.streaming import background
from gym_runtime.errors import BrokerError, UsageError
from gym_runtime.rpc.members import announce, drained_on_request
from gym_runtime.rpc.registry import Heartbeat
from gym_runtime.timing import TRAINER_DRAIN_S
from gym_runtime.workers.adapter import Adapter
from gym_runtime.workers.model_worker import ModelWorker

CAPACITY = 4096
"""Calls in flight; the engine has its own queue."""


@asynccontextmanager
async def serve_model(
    nats: str, adapter: Adapter, leave: Callable[[], None] = lambda: None
) -> AsyncGenerator[str]:
    """Serve a model for as long as the context lasts; yields the name of its pool.

    No other program serves this pool, so this process's rollouts ask its own engine.

    Args:
        leave: called when a client asks the worker to leave, perhaps several times. The context must then be
            left within `TRAINER_DRAIN_S`. Until then the model is served, because rollouts need it to their
            end.

    Raises:
        BrokerError: the broker is not reachable, or these credentials may not serve a model.
        UsageError: the join file has no key of a model worker.
    """
    async with AsyncExitStack() as stack:
        try:
            bus = await stack.enter_async_context(connect_bus(nats, role="model"))
        except (BrokerError, UsageError) as error:
            raise type(error)(
                f"{error.message}. A trainer that serves its own engine needs the keys of a client and "
                "a model worker: trainer.join of 'gym-runtime broker' has both"
            ) from error
        yield await stack.enter_async_context(serve_on(bus, adapter, leave))


@asynccontextmanager
async def serve_on(
    bus: Bus, adapter: Adapter, leave: Callable[[], None] = lambda: None
) -> AsyncGenerator[str]:
    """As `serve_model`, on a connection that exists."""
    pool = f"trainer-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    worker = ModelWorker(
        bus, worker=pool, pools=[pool], adapter=adapter, capacity=CAPACITY, model=("trainer", pool)
    )
    started_s = clock.now()

    def heartbeat() -> Heartbeat:
        return Heartbeat(
            worker=pool,
            kind="model",
            pools=[pool],
            host=socket.gethostname(),
            pid=os.getpid(),
            started_s=started_s,
            capacity=CAPACITY,
            in_use=worker.service.in_use,
            load=worker.service.load,
            places=True,
            detail={"model": "the trainer's engine"},
            figures=worker.meter.figures(),
        )

    async with background() as tasks:
        for work in (worker.run, partial(announce, bus, heartbeat)):
            ready = anyio.Event()
            tasks.start_soon(partial(work, ready=ready.set))
            await ready.wait()
        tasks.start_soon(drained_on_request, bus, heartbeat, TRAINER_DRAIN_S, leave)
        yield pool
