"""The watchdog: says which hop stalls, before deadlines do.

Looks now and then at what an agent worker's rollouts wait for. One line names each worker (or pool) that
keeps rollouts waiting for longer than `STALL_S`, however many there are.
"""

from __future__ import annotations

from collections import defaultdict

import anyio

from gym_runtime.logs import logger
from gym_runtime.rpc.in_flight import InFlightRequest
from gym_runtime.rpc.router import Router

STALL_S = 60.0
LOOK_S = 10.0


class Stalls:
    """What stalls in one agent worker.

    Attributes:
        count: requests that are waited for since more than `STALL_S`, at the last look.
    """

    def __init__(self, router: Router) -> None:
        self.count = 0
        self._router = router

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await anyio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Look once."""
        slow: dict[str, list[InFlightRequest]] = defaultdict(list)
        for hops in self._router.waiting.values():
            for hop in hops:
                if hop.waited_s() > STALL_S:
                    slow[hop.name].append(hop)
        self.count = sum(map(len, slow.values()))
        for name, hops in slow.items():
            longest_s = max(hop.waited_s() for hop in hops)
            logger().warning("a hop stalls", hop=name, requests=len(hops), longest_s=round(longest_s))
