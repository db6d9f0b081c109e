"""What verifications that hang cost the others: ``python tests/bench/isolated.py [seconds]``.

Verifications of about 10 ms of processor time arrive at random, at 20 % of what the machine's CPUs can do.
In turns: undisturbed, with 1 % of them spinning for ever until they are killed after `LIMIT_S`, and with 1 %
sleeping for ever; `ROUNDS` times, because a machine is never alone. Prints the latencies of those that end,
from arrival to verdict, in milliseconds, and the best round's p99.

Before that it prints what one verification costs in processor time, of `ENVIRONMENTS` on their first example
row and a wrong answer: the best of `COST_ROUNDS` rounds, in turns.

isolated
    `verify_isolated`: of this process and of all that it has started.
unisolated
    The same request to a process that judges one after the other, as it was before forks: what this process
    spends on an isolated verification (its turn, limits and quarantine were there before), and what a process
    spends that reads requests, judges them and writes verdicts (`long_lived.py`).
here
    The verification alone, in this process.
fork
    A fork that ends at once, waited for, in the sandbox of a process that has imported the environment.

Isolation costs what the first is beyond the second. `BEYOND_AT_MOST_MS` is what it may be on a machine that
does nothing else: forks cost twice as much while others fill the processors' caches.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import anyio
import psutil
import uvloop
from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import run_isolated, verify_isolated
from gym_runtime.environment.replayed_session import rejudge
from gym_runtime.environment.verdict import make_response
from gym_sandbox import frames
from gym_sandbox.processes.child import Child
from workload import fork_ms_of, run

WORK = "x = 0\nfor i in range(150_000): x += i"
HANGS = {"undisturbed": WORK, "1 % spin": "while True: pass", "1 % sleep": "import time; time.sleep(1e6)"}
LIMIT_S = 5.0
LOAD = 0.2
ROUNDS = 4
ENVIRONMENTS = ("reasoning_gym", "math_with_judge", "structured_outputs")
COUNT = 150
FORKS = 30
COST_ROUNDS = 7
BEYOND_AT_MOST_MS = 3.0
serial = count()  # the same input would be quarantined


async def verify(code: str, latencies_ms: list[float]) -> None:
    start_s = time.perf_counter()
    try:
        await run_isolated(run, f"{code}\n# {next(serial)}", timeout_s=LIMIT_S)
    except TimeoutError:
        return
    latencies_ms.append((time.perf_counter() - start_s) * 1000)


def cpu_s(*, started: bool) -> float:
    """Seconds of processor time of this process, or of all that it has started."""
    if not started:
        return time.process_time()
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


async def costs_ms(name: str) -> dict[str, float]:
    """Processor time of one verification in milliseconds, by where it happens, and of one fork."""
    environment = catalogue.environment(name)
    row = environment.examples.read_bytes().splitlines()[0]

    async def isolated(reply: bytes) -> None:
        await verify_isolated(str(environment.source), row, reply, LIMIT_S)

    async def long_lived(reply: bytes) -> None:
        await process.send(frames.encode_arguments((row, reply)))
        assert await process.receive(frames.ANSWER_BYTES)

    async def here(reply: bytes) -> None:
        await rejudge(environment.resource, row, reply)

    async def spent_ms(verification: Callable[[bytes], Awaitable[None]]) -> tuple[float, float]:
        """Of this process, and of what it has started: infinity if one of these was replaced meanwhile."""
        present, own_s, others_s = pids(), cpu_s(started=False), cpu_s(started=True)
        for _ in range(COUNT):
            await verification(make_response(f"<answer>{next(serial)}</answer>"))
        own_s, others_s = cpu_s(started=False) - own_s, cpu_s(started=True) - others_s
        return own_s * 1000 / COUNT, others_s * 1000 / COUNT if present == pids() else math.inf

    rounds: list[tuple[float, ...]] = []
    program = [sys.executable, str(Path(__file__).with_name("long_lived.py")), name]
    imported = (f"gym_resources.{name}", *environment.definition.imports)
    async with Child(program) as process:
        for _ in range(COST_ROUNDS):
            worker_ms, forks_ms = await spent_ms(isolated)
            _, judge_ms = await spent_ms(long_lived)
            alone_ms, _ = await spent_ms(here)
            fork_ms = await run_isolated(fork_ms_of, FORKS, timeout_s=LIMIT_S, imports=imported)
            rounds.append((worker_ms + forks_ms, worker_ms + judge_ms, alone_ms, fork_ms))
    # Without the first round, which starts processes.
    return dict(zip(("isolated", "unisolated", "here", "fork"), map(min, *rounds[1:]), strict=True))


def pids() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


async def measure(hang: str, rate: float, seconds: float) -> list[float]:
    """Latencies of the verifications that arrive within so many seconds, in the order of their ends."""
    chance = random.Random(1)
    latencies_ms: list[float] = []
    async with anyio.create_task_group() as tasks:
        next_s, end_s = time.perf_counter(), time.perf_counter() + seconds
        while next_s < end_s:
            await anyio.sleep(max(0.0, next_s - time.perf_counter()))
            hanging = chance.random() < 0.01
            tasks.start_soon(verify, hang if hanging else WORK, latencies_ms)
            next_s += chance.expovariate(rate)
    return latencies_ms


async def main(seconds: float) -> None:
    for name in ENVIRONMENTS:
        cost_ms = await costs_ms(name)
        beyond_ms = cost_ms["isolated"] - cost_ms["unisolated"]
        costs = ", ".join(f"{where} {ms:.2f}" for where, ms in cost_ms.items())
        print(
            f"{name:20} {costs} ms of processor time: isolation costs {beyond_ms:.2f} "
            f"({'within' if beyond_ms <= BEYOND_AT_MOST_MS else 'above'} {BEYOND_AT_MOST_MS:g})"
        )
    alone_ms: list[float] = []
    for _ in range(50):
        await verify(WORK, alone_ms)
    work_ms = statistics.median(alone_ms)
    rate = LOAD * (os.cpu_count() or 2) * 1000 / work_ms
    print(f"one verification alone takes {work_ms:.1f} ms; {rate:.0f} arrive per second")
    await measure(WORK, rate, 3)
    measured: dict[str, list[list[float]]] = {name: [] for name in HANGS}
    for _ in range(ROUNDS):
        for name, hang in HANGS.items():
            measured[name].append(await measure(hang, rate, seconds / ROUNDS))
    best_ms = {name: min(map(p99, rounds)) for name, rounds in measured.items()}
    for name, rounds in measured.items():
        latencies_ms = sorted(latency for latencies in rounds for latency in latencies)
        print(
            f"{name:12} n {len(latencies_ms):6}  p50 {statistics.median(latencies_ms):7.1f}  "
            f"p99 {p99(latencies_ms):7.1f}  best round's p99 {best_ms[name]:7.1f} ms  "
            f"({best_ms[name] / best_ms['undisturbed']:.2f}x undisturbed)"
        )


def p99(latencies_ms: list[float]) -> float:
    return statistics.quantiles(latencies_ms, n=100)[98]


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
