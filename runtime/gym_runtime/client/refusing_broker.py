"""Whether the broker refuses to store what the workers of a system have."""

from __future__ import annotations

import math
from contextlib import suppress

import anyio

from gym_runtime.bus.streams import FULL_REMEDY
from gym_runtime.client.client import Client
from gym_runtime.errors import BrokerError, GymError
from gym_runtime.rpc.members import fresh

REFUSED_S = 20.0
"""How long a run waits for a broker that stores nothing. A worker notices it within 10 s, and files are
closed within 5 s: together less than a minute. A broker of ours that has space again needs 6 s."""


async def watch_refusals(client: Client, every_s: float) -> None:
    """Look until cancelled.

    Raises:
        BrokerError: for `REFUSED_S` some worker could not store anything; names the reason and the remedy.
    """
    since_s = math.inf
    while True:
        await anyio.sleep(every_s)
        refused = ""
        # Where nothing answers, the broker is away, and comes back: that is not this case.
        with suppress(GymError):
            workers = await fresh(client.driver.bus, await client.workers())
            refused = next((one.refused for one in workers if one.refused), "")
        now_s = anyio.current_time()
        # Seen at each look: right after an outage a worker has not stored again yet.
        since_s = min(since_s, now_s) if refused else math.inf
        if now_s >= since_s + REFUSED_S:
            raise BrokerError(
                f"the broker has stored nothing for {REFUSED_S:.0f} s ({refused}): {FULL_REMEDY}"
            )
