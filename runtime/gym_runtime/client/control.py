"""Commands to serving models: each of their workers is asked, and all of them must answer."""

from __future__ import annotations

from collections.abc import Iterable

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.client.streaming import background
from gym_runtime.errors import from_fault
from gym_runtime.messages import calls
from gym_runtime.messages.names import token


async def control(
    bus: Bus, workers: Iterable[str], command: calls.Control, *, limit_s: float
) -> dict[str, calls.ControlAnswer]:
    """Ask all workers at once; their answers, by worker id.

    Raises:
        ModelRefused: an engine cannot do it.
        GymError: a worker did not answer within ``limit_s`` seconds, or its engine failed.
    """
    answers: dict[str, calls.ControlAnswer] = {}

    async def ask(worker: str) -> None:
        deadline_s = clock.monotonic() + limit_s
        data = await bus.request(
            f"control.{token(worker, 'worker')}", calls.encode(command), deadline_s=deadline_s
        )
        reply = calls.decode_reply(data)
        if reply.fault is not None:
            raise from_fault(reply.fault)
        answers[worker] = calls.decode_control_answer(reply.body)

    # `cancel=False`: the context ends when all have answered.
    async with background(cancel=False) as tasks:
        for worker in workers:
            tasks.start_soon(ask, worker)
    return answers
