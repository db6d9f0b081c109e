"""What a watcher (`gym_runtime.rpc.members`) asks a member, and the broker when the member is silent."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.errors import UNREADABLE, GymError, NoWorker
from gym_runtime.rpc.registry import Heartbeat, decode_heartbeat
from gym_runtime.timing import MEMBER_ANSWER_S


async def answer(bus: Bus, name: str, questions: int, wanted: Callable[[], bool]) -> Heartbeat:
    """A member's answer to any of so many questions, one each `MEMBER_ANSWER_S`, while it is ``wanted``.

    A question stays open while others are asked, because behind a slow link answers take longer. There are
    several, because one that is sent while the member connects again is lost.

    Raises:
        Exception: what befell a question: a `GymError`, or one of `UNREADABLE`.
    """
    answers: list[Heartbeat] = []
    failures: list[Exception] = []
    deadline_s = clock.monotonic() + questions * MEMBER_ANSWER_S

    async def ask(over: anyio.CancelScope) -> None:
        try:
            answers.append(decode_heartbeat(await bus.request(f"alive.{name}", b"", deadline_s=deadline_s)))
        except (GymError, *UNREADABLE) as error:
            failures.append(error)
        # The first answer, or failure, ends the other questions as well.
        over.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(questions):
            tasks.start_soon(ask, tasks.cancel_scope)
            await anyio.sleep(MEMBER_ANSWER_S)
            if not wanted():
                break
    # An answer counts more than a failure that came with it.
    if answers:
        return answers[0]
    raise failures[0]


async def reaches_broker(bus: Bus) -> bool:
    """Whether the broker answers us; "no responders" for a name without listeners is an answer."""
    try:
        await bus.request("alive.unknown.unknown", b"", deadline_s=clock.monotonic() + MEMBER_ANSWER_S)
    except NoWorker:
        return True
    except GymError:
        pass
    return False
