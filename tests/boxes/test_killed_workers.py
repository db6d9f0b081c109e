"""Workers are killed a thousand times at a service with twelve faults: no box is lost, the budget holds."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from boxes.e2b_server import FAULTS, E2BServer
from boxes.soak_workers import ACCOUNT, PACE
from gym_boxes import Leases
from gym_boxes.e2b import E2B
from gym_runtime.bus import connect
from gym_runtime.system.private_broker import Broker
from time_limits import busy

MOST, PER_S = 5, 40.0
FROZEN = 2
"""A worker that wakes after its lease may make a box of its old generation: one more than the budget each."""


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(580)
@pytest.mark.parametrize("kills", [12, pytest.param(1000, marks=pytest.mark.soak)])
async def test_no_box_is_lost_when_workers_are_killed(broker: Broker, kills: int) -> None:
    script = Path(__file__).with_name("soak_workers.py")
    # A half-open connection costs each caller its own limit, so it is rare here.
    faults = {**dict.fromkeys(FAULTS, 0.05), "half_open": 0.002, "box_dies": 0.005}
    async with E2BServer(faults, late_s=PACE.late_s * 0.8, seed=kills).run() as server:
        told = [broker.url, server.url, str(MOST), str(PER_S), str(kills), "7"]
        done = await anyio.run_process([sys.executable, str(script), *told], check=False, stderr=None)
        assert done.stdout.endswith(b"done\n"), done.stdout[-2000:]
        counts = dict(server.counts)
        assert server.most <= MOST + FROZEN, (server.most, counts)
        # All are dead: a worker that comes later ends what they have left, within a lease and a period.
        server.faults = {}
        boxes = E2B("key", api_url=server.url, sandbox_url=server.url)
        async with (
            connect(broker.url) as bus,
            Leases(bus, boxes, account=ACCOUNT, most=MOST, per_s=PER_S, pace=PACE) as leases,
        ):
            with anyio.fail_after((PACE.lease_s + PACE.late_s + 6 * PACE.period_s) * busy()):
                while True:
                    server.expire()
                    slots = (await leases.book.slots()).values()
                    if not server.boxes and {seen.slot.state for seen in slots} == {"free"}:
                        break
                    await anyio.sleep(0.1)
        await boxes.aclose()
        total = server.counts
        assert total["created"] == total["ended"] + total["expired"] + total["died"]
        assert total["created"] > kills / 5
        if kills > 100:
            print(f"{total['created']} boxes, at most {server.most} at a time: {dict(total)}")
            assert all(total[fault] for fault in FAULTS)
