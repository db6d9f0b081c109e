"""What decides on a reward in a container: done in a new one, and in another one if that ended meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gym_sandbox.container import Container
from gym_sandbox.processes import disturbances
from gym_sandbox.sandbox_errors import Interrupted

BELIEVED = 2
"""So many containers that end during the same work have been ended by it."""
_T = TypeVar("_T")


async def in_container(make: Callable[[], Container], use: Callable[[Container], Awaitable[_T]]) -> _T:
    """What was done in a new container, and in another one if that ended meanwhile.

    Args:
        make: a container that was not started.
        use: what runs there is the same each time. That a container ended counts as its doing if it happens
            in `BELIEVED` containers, and it was not certainly something else.

    Raises:
        Interrupted: something outside has ended it, several times.
        Exception: as ``use``.
    """
    ended = 0
    for left in reversed(range(disturbances.TRIES)):
        async with make() as container:
            try:
                result = await use(container)
            except Interrupted:
                if not left:
                    raise
            except Exception:
                ended += 1
                if not container.doubtful or ended == BELIEVED:
                    raise
            else:
                ended += 1
                if not container.doubtful or ended == BELIEVED:
                    return result
    raise Interrupted("something outside has killed the container")
