"""What ends programs from outside: SIGTERM to a worker and its children, and whatever kills a sandbox.

Schedulers and service managers send SIGTERM, and a worker that drains goes on until it has finished. What it
runs to the end, and could run again, it runs again if the signal came meanwhile (`undisturbed`): if the
signal has ended a program, or one of its children, the result says nothing about the program. So it is with a
sandbox that was killed (`Interrupted`), as by the kernel when the machine has no memory left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from gym_sandbox.sandbox_errors import Interrupted, SandboxError

SIGNALLED_S = 1.0
"""Within this time a signal to all processes has reached this one, too."""

TRIES = 3
_T = TypeVar("_T")
_came = 0


def note() -> None:
    """This process got SIGTERM."""
    global _came
    _came += 1


def count() -> int:
    """How often this process got SIGTERM."""
    return _came


async def came_since(before: int) -> bool:
    """Whether this process got SIGTERM since `count` was ``before``, or gets it within `SIGNALLED_S` seconds.

    The signal may reach a child first, so this is waited for.
    """
    if _came == before:
        await anyio.sleep(SIGNALLED_S)
    return _came != before


DOUBT = "something outside may have killed it"
"""In the words of an end of which it is not known whether what ran there has caused it."""


async def undisturbed(
    run: Callable[[], Awaitable[_T]],
    suspicious: Callable[[_T], bool],
    doubtful: Callable[[_T], bool] = lambda _: False,
) -> _T:
    """What ``run`` returned, or raised, without a disturbance meanwhile; after `TRIES` tries whatever it did.

    Args:
        suspicious: whether a result may be the signal's doing.
        doubtful: whether it may be that of something else, until it comes twice.
    """
    doubted = False
    for _ in range(TRIES - 1):
        before = _came
        try:
            result = await run()
        except Interrupted:
            continue
        except SandboxError:
            if not await came_since(before):
                raise
        else:
            if _came == before and not (suspicious(result) and await came_since(before)):
                if doubted or not doubtful(result):
                    return result
                doubted = True
    return await run()
