"""The watchdog logs which requests stall, before their deadlines pass.

Every `STALL_LOOK_S` it looks at the requests that an agent worker's rollouts wait for. It logs one line for
each worker (or pool) that has kept requests waiting for longer than `STALL_S`, however many they are.
"""

from __future__ import annotations

from collections import defaultdict

import anyio

from gym_runtime.logs import logger
from gym_runtime.rpc.in_flight import InFlightRequest
from gym_runtime.rpc.router import Router

STALL_S = 60.0
"""A worker that keeps requests waiting for longer is named in the log."""
STALL_LOOK_S = 10.0
"""How often an agent worker looks for such requests."""


class Stalls:
    """The stalled requests of one agent worker.

    Attributes:
        count: requests that had waited for more than `STALL_S` at the last look.
    """

    def __init__(self, router: Router) -> None:
        self.count = 0
        self._router = router

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await anyio.sleep(STALL_LOOK_S)
            self.look()

    def look(self) -> None:
        """Look once."""
        slow: dict[str, list[InFlightRequest]] = defaultdict(list)
        for requests in self._router.waiting.values():
            for request in requests:
                if request.waited_s() > STALL_S:
                    slow[request.name].append(request)
        self.count = sum(map(len, slow.values()))
        for name, requests in slow.items():
            longest_s = max(request.waited_s() for request in requests)
            logger().warning(
                "requests stall", request=name, requests=len(requests), longest_s=round(longest_s)
            )
