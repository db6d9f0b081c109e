"""Browser sessions: actions per second, CPU and memory of each: ``python -m bench.browsers`` in ``tests``.

Some sessions at a time open pages of MiniWoB++, act on them for a while (the mouse moves, the page is read, a
screenshot after each), and do their tasks. It fails where a task is not done, a session takes 500 MB or more,
or an action takes so much CPU that two cores could not do four a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AsyncExitStack

import anyio
import msgspec
import psutil
from bench.measure import print_table
from gym_resources.screens.browser import executable
from gym_runtime import make_response
from gym_runtime.environment import catalogue, session_of
from gym_testing.checks.cpu_meter import CpuMeter, cpu_meter
from resources.miniwob_oracle import Player, play

PAGES = ("click-test-2", "enter-text", "click-button", "login-user", "click-tab", "focus-text")
CORES, RATE, MEMORY_MB = 2, 4.0, 500.0


def memory_mb() -> float:
    """What the processes of a browser hold, in the mean (PSS)."""
    browsers, held = 0, 0
    for child in psutil.Process().children(recursive=True):
        try:
            line = child.cmdline()
            held += child.memory_full_info().pss
        except psutil.Error:
            continue
        browsers += bool(line) and line[0] == executable() and not any("--type=" in one for one in line)
    return held / 1e6 / browsers


def used_s(meter: CpuMeter) -> float:
    return (meter.others_ns() + time.process_time_ns()) / 1e9


async def act(user: Player, until_s: float) -> int:
    """Act until then; how often."""
    done = 0
    while time.monotonic() < until_s:
        await user.call("computer", action="mouse_move", coordinate=[20 + done % 200, 100])
        await user.call("computer", action="screenshot")
        await user.read()
        done += 3
    return done


async def measure(sessions: int, seconds: float) -> bool:
    resource = catalogue.environment("miniwob").resource
    users: list[tuple[str, Player, object]] = []
    actions, rewards = 0, list[float]()

    async def begin(stack: AsyncExitStack, number: int) -> None:
        page = PAGES[number % len(PAGES)]
        row = {"responses_create_params": {"input": "x"}, "page": page, "seed": number % 3}
        session = await stack.enter_async_context(session_of(resource, msgspec.json.encode(row)))
        users.append((page, user := Player(resource, session), session))
        await user.read()

    async def work(user: Player, until_s: float) -> None:
        nonlocal actions
        actions += await act(user, until_s)

    with cpu_meter() as meter:
        async with AsyncExitStack() as stack:
            begun_s = used_s(meter)
            for number in range(sessions):
                await begin(stack, number)
            opened_s, since_s = used_s(meter), time.monotonic()
            async with anyio.create_task_group() as tasks:
                for _, user, _ in users:
                    tasks.start_soon(work, user, since_s + seconds)
            acted_s, took_s = used_s(meter), time.monotonic() - since_s
            held_mb = await anyio.to_thread.run_sync(memory_mb)
            for page, user, session in users:
                await play(user, page)
                rewards.append((await resource.verify(session, make_response())).reward)  # pyright: ignore
    each_s = (acted_s - opened_s) / actions
    print_table(
        f"{sessions} browser sessions at a time, {actions} actions",
        ["actions/s", "CPU ms of an action", "of a start and a first page", "MB of a session", "tasks done"],
        [
            [
                f"{actions / took_s:.1f}",
                f"{1000 * each_s:.0f}",
                f"{1000 * (opened_s - begun_s) / sessions:.0f}",
                f"{held_mb:.0f}",
                f"{rewards.count(1.0)} of {sessions}",
            ]
        ],
    )
    return CORES / each_s >= RATE and held_mb < MEMORY_MB and set(rewards) == {1.0}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    sys.exit(not anyio.run(measure, given.sessions, given.seconds))
