"""Threads beside a worker's event loop: one answers while it is blocked, one ends it when it serves nothing.

A verifier that computes without ``await`` stops the event loop of its worker, and the worker does not answer
when it is asked whether it is alive. It is not lost: its calls go on afterwards. If it were declared gone,
its requests would be executed twice, and each would count a death. So a thread with a second connection
answers until the loop goes on, for `STOOD_IN_AT_MOST_S` seconds at most, and says where the loop is blocked
(``blocked`` in the heartbeat's details). Code that keeps the interpreter's lock, such as one search for a
regular expression, stops the thread too.

A worker whose service has ended leaves, and its supervisor starts another one. But what it has to leave may
hold it up: code that ignores its cancellation keeps its task group for ever. Nothing in the event loop can
end that, so another thread looks.

A platform such as Kubernetes may watch as well: the event loop touches a file while the worker serves
(`gym_runtime.system.spec.HEALTH_DIR`).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio
from gym_sandbox.processes import tree
from msgspec.structs import replace

from gym_runtime.bus.interface import Bus, Incoming
from gym_runtime.environment.blocked_loop import watching
from gym_runtime.errors import GymError, UsageError
from gym_runtime.logs import logger
from gym_runtime.rpc.members import Heartbeat, encode_heartbeat
from gym_runtime.system.spec import HEALTH_DIR, health_file
from gym_runtime.timing import STAND_IN_S

STOOD_IN_AT_MOST_S = 60.0
"""How long it does so. Then the worker counts as gone, like a frozen one."""
STAND_IN_LOOK_S = 0.05
"""How often it looks whether the loop goes on."""


@asynccontextmanager
async def standing_in(
    connect: Callable[[], AbstractAsyncContextManager[Bus]], current: Callable[[], Heartbeat]
) -> AsyncGenerator[None]:
    """Answer for a worker of this event loop whenever the loop is blocked, for as long as the context lasts.

    Args:
        connect: makes a connection of the thread's own.
    """
    loop = asyncio.get_running_loop()
    latest = current()

    def learn(goes_on: threading.Event) -> None:
        nonlocal latest
        latest = current()
        goes_on.set()

    def stand_in(place: str, blocked_s: float) -> None:
        goes_on = threading.Event()
        with suppress(RuntimeError):  # the loop is closed
            # Runs as soon as the loop goes on, and so ends the answering.
            loop.call_soon_threadsafe(learn, goes_on)
            said = {"blocked": f"blocked at {os.path.basename(place)}", **latest.detail}
            anyio.run(_answer, connect, replace(latest, detail=said), goes_on)

    async with watching(STAND_IN_S, stand_in):
        yield


async def _answer(
    connect: Callable[[], AbstractAsyncContextManager[Bus]], heartbeat: Heartbeat, goes_on: threading.Event
) -> None:
    try:
        async with connect() as bus, anyio.create_task_group() as tasks:

            def asked(incoming: Incoming) -> None:
                tasks.start_soon(bus.publish, incoming.reply, encode_heartbeat(heartbeat))

            async with bus.serve(f"alive.{heartbeat.name}", asked):
                with anyio.move_on_after(STOOD_IN_AT_MOST_S):
                    while not goes_on.is_set():  # noqa: ASYNC110 - another thread sets it
                        await anyio.sleep(STAND_IN_LOOK_S)
    except* GymError as error:
        logger().info("nothing answers for a worker that is blocked", error=str(error.exceptions[0]))


UNSERVED_CHECKED_S = 1.0
"""How often a thread looks whether its worker serves (`gym_runtime.system.watchdogs`)."""
UNSERVED_S = 15.0
"""A worker whose service has ended, and which has not ended after so long, is ended. Longer than the 10 s
that a resource worker has to close its sessions."""


def end_when_unserved(serving: Callable[[], bool]) -> None:
    """From now on, end this process and those that it has started when ``serving`` is false for `UNSERVED_S`.

    A thread calls ``serving``, until the process ends.
    """

    def watch() -> None:
        served_s = time.monotonic()
        while time.monotonic() - served_s < UNSERVED_S:
            time.sleep(UNSERVED_CHECKED_S)
            if serving():
                served_s = time.monotonic()
        logger().error("this worker serves nothing and does not end by itself; it is ended")
        for child in tree.children(os.getpid()):
            tree.kill(child)
        os._exit(1)

    threading.Thread(target=watch, name="unserved", daemon=True).start()


HEALTH_S = 5.0
"""How often a worker's event loop touches its file. Probes allow minutes: a verifier may block the loop."""


@asynccontextmanager
async def shown_as_serving() -> AsyncGenerator[None]:
    """Keep this process's file fresh while the context lasts, if `HEALTH_DIR` names a folder.

    Raises:
        UsageError: the folder cannot be written.
    """
    file = health_file(os.getpid())
    if file is None:
        yield
        return

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise UsageError(f"{HEALTH_DIR}={file.parent}: {error.strerror}") from None

    async def touch() -> None:
        while True:
            await anyio.sleep(HEALTH_S)
            with suppress(OSError):  # the file then grows old, which the probe sees
                file.touch()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(touch)
            yield
            tasks.cancel_scope.cancel()
    finally:
        with suppress(OSError):
            file.unlink()
