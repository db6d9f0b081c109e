"""What a rollout costs in a loop with the `openai` package and in the bare loop, in turn, with the same rows.

python tests/bench/openai_loop.py
"""

from __future__ import annotations

import statistics

import uvloop
from gym_testing.bench import instant_engine, loop, openai_loop
from measure import print_table

ROLLOUTS, IN_FLIGHT, ROUNDS = 1000, 256, 5


async def main() -> None:
    bare: list[float] = []
    openai: list[float] = []
    with instant_engine.running() as (url, _):
        await openai_loop.run(url, ROLLOUTS, IN_FLIGHT)  # warm
        for _ in range(ROUNDS):
            bare.append((await loop.run(url, ROLLOUTS, IN_FLIGHT))[1] / ROLLOUTS)
            openai.append(await openai_loop.run(url, ROLLOUTS, IN_FLIGHT) / ROLLOUTS)
    times = statistics.median(one / other for one, other in zip(openai, bare, strict=True))
    print_table(
        f"CPU of a rollout, {IN_FLIGHT} in flight, the median of {ROUNDS} rounds",
        ["bare loop", "`openai` loop", "times the bare loop"],
        [[*(f"{1000 * statistics.median(one):.2f} ms" for one in (bare, openai)), f"{times:.0f}"]],
    )


uvloop.run(main())
