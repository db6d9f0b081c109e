"""What a command in a container costs, with bubblewrap and in an image of this machine's programs.

    PYTHONPATH=tests python -m bench.container_commands [--times 40] [--rounds 5]

CPU is that of this process and of all that it starts, for each command; the best round's mean.
``PYTHONPATH=tests:OTHER/runtime`` measures another working copy.
"""

from __future__ import annotations

import argparse
import os
import time

import anyio
from bench.measure import print_table
from gym_sandbox import Container, container_engines
from gym_testing.checks.cpu_meter import CpuMeter, cpu_meter
from sandbox import images

SCRIPTS = (":", "echo on", "echo on; echo error >&2", "yes | head -c 6000000")


async def measured(meter: CpuMeter, container: Container, script: str, times: int) -> tuple[float, float]:
    """Milliseconds of CPU and of the clock, for each command."""
    cpu_ns, wall_ns = meter.others_ns() + time.process_time_ns(), time.perf_counter_ns()
    for _ in range(times):
        await container.run(script, timeout_s=30)
    wall_ns = time.perf_counter_ns() - wall_ns
    cpu_ns = meter.others_ns() + time.process_time_ns() - cpu_ns
    return cpu_ns / times / 1e6, wall_ns / times / 1e6


async def main(times: int, rounds: int) -> None:
    backs: list[tuple[str, Container]] = [("bubblewrap", Container(directory="work"))]
    podman = images.engine("podman")
    if podman.refusal:
        print(podman.refusal)
    else:
        os.environ.update({**podman.variables, container_engines.SETTING: "podman"})
        backs.append(("podman", Container(images.NAME, directory="/testbed")))
    rows: list[list[object]] = []
    with cpu_meter() as meter:
        for back, container in backs:
            async with container:
                await container.run(":", timeout_s=60)
                for script in SCRIPTS:
                    best = min([await measured(meter, container, script, times) for _ in range(rounds)])
                    rows.append([back, f"`{script}`", *(f"{one:.1f}" for one in best)])
    print_table(f"Counted by {meter.counted_by}", ["", "", "CPU ms", "wall ms"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    anyio.run(main, options.times, options.rounds, backend_options={"use_uvloop": True})
