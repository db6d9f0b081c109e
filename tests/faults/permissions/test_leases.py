"""Leases of boxes at a secured broker, as resource workers keep them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from boxes.e2b_server import E2BServer
from faults.permissions.identities import as_role
from gym_boxes import Leases, Pace
from gym_boxes.e2b import E2B
from gym_runtime import clock
from gym_runtime.errors import Fenced
from time_limits import busy

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.anyio]
PACE = Pace(lease_s=30.0, renew_s=0.2, late_s=0.5, period_s=0.5)


@asynccontextmanager
async def leasing(url: str, folder: Path, service: E2BServer) -> AsyncGenerator[Leases]:
    boxes = E2B("key", api_url=service.url, sandbox_url=service.url)
    async with (
        as_role(url, folder, "resource") as bus,
        Leases(bus, boxes, account="secured", most=2, per_s=50.0, pace=PACE) as leases,
    ):
        yield leases
    await boxes.aclose()


async def test_resource_workers_take_renew_hand_over_and_reap(url: str, folder: Path) -> None:
    deadline_s = clock.monotonic() + 60
    async with as_role(url, folder, "client"):
        pass  # it has made the streams
    async with E2BServer().run() as service, leasing(url, folder, service) as first:
        lease = await first.take("r.0.0", "base", deadline_s=deadline_s)
        await lease.renew()
        async with leasing(url, folder, service) as second:
            taken = await second.take("r.0.0", "base", deadline_s=deadline_s)
            assert (taken.resumed, taken.box) == (True, lease.box)
            with pytest.raises(Fenced):
                await lease.renew()
            # Of an earlier generation, so no lease knows it; and of a slot beyond the budget.
            for label in ("secured.0.0", "secured.7.0"):
                await second.provider.create("base", label=label, life_s=600)
            with anyio.fail_after(20 * busy()):
                while list(service.boxes) != [taken.box]:
                    await anyio.sleep(0.05)
        assert not service.boxes, "what is held is ended with its worker"
