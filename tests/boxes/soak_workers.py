"""Eight worker processes that are killed, for `test_killed_workers`: forks of one that has imported all.

``python soak_workers.py NATS_URL SERVICE_URL MOST PER_S KILLS SEED``; prints one line when it is done.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import anyio
from gym_boxes import Leases, Pace
from gym_boxes.e2b import E2B
from gym_runtime import GymError, clock
from gym_runtime.bus import connect

PACE = Pace(lease_s=4.0, renew_s=1.0, late_s=1.0, period_s=1.0)
ACCOUNT = "soak"


async def work(nats: str, service: str, most: int, per_s: float) -> None:
    boxes = E2B("key", api_url=service, sandbox_url=service)
    async with (
        connect(nats) as bus,
        Leases(bus, boxes, account=ACCOUNT, most=most, per_s=per_s, pace=PACE) as leases,
    ):
        while True:
            name = f"r{random.randrange(40)}"
            try:
                lease = await leases.take(name, "base", deadline_s=clock.monotonic() + 20)
                for _ in range(random.randrange(3)):
                    await anyio.sleep(random.uniform(0, 0.5))
                    await lease.renew()
                await lease.end()
            except GymError:
                await anyio.sleep(0.05)


def started(arguments: tuple[str, str, int, float]) -> int:
    if pid := os.fork():
        return pid
    random.seed()
    try:
        anyio.run(work, *arguments)
    finally:
        os._exit(1)


def main() -> None:
    nats, service, most, per_s, kills, seed = sys.argv[1:]
    arguments = (nats, service, int(most), float(per_s))
    chance = random.Random(seed)
    workers = [started(arguments) for _ in range(8)]
    for _ in range(int(kills)):
        time.sleep(chance.uniform(0.03, 0.25))
        place = chance.randrange(len(workers))
        # Some are frozen for longer than a lease before they die.
        if chance.random() < 0.008:
            os.kill(workers[place], signal.SIGSTOP)
            time.sleep(PACE.lease_s * 1.5)
            os.kill(workers[place], signal.SIGCONT)
            time.sleep(0.3)
        os.kill(workers[place], signal.SIGKILL)
        os.waitpid(workers[place], 0)
        workers[place] = started(arguments)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print("done", flush=True)


if __name__ == "__main__":
    main()
