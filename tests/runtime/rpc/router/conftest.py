"""Workers and a router on a bus in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from gym_runtime.rpc.ask import Router
from gym_testing.background import hosting
from gym_testing.memory import MemoryBroker
from runtime.rpc.router.router_cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncGenerator[Cluster]:
    broker = MemoryBroker()
    async with AsyncExitStack() as connections, broker.connect("caller") as bus, hosting() as tasks:
        router = Router(bus)
        tasks.start_soon(router.run)
        yield Cluster(broker, connections, tasks, bus, router)
