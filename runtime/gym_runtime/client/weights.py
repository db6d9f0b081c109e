"""Commands to serving models, such as new weights: all of a model's workers obey, or it is an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from gym_runtime import clock
from gym_runtime.bus.interface import Bus
from gym_runtime.client.streaming import background
from gym_runtime.errors import GymError, ModelUnavailable, UsageError, from_fault
from gym_runtime.messages import calls
from gym_runtime.messages.calls import Control, ControlAnswer
from gym_runtime.messages.names import token
from gym_runtime.timing import WORKERS_LOOK_S
from gym_runtime.workers.current_weights import stored

ROUNDS = 8
"""How often workers that joined meanwhile are asked too."""

Workers = Callable[[], Awaitable[list[str]]]


async def control(
    bus: Bus, workers: Iterable[str], command: Control, *, limit_s: float
) -> dict[str, ControlAnswer]:
    """Ask all workers at once; their answers, by worker id.

    Raises:
        ModelRefused: an engine cannot do it.
        GymError: a worker did not answer within ``limit_s`` seconds, or its engine failed.
    """
    answers: dict[str, ControlAnswer] = {}

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


async def commanded(
    bus: Bus, workers: Workers, command: Control, *, limit_s: float
) -> dict[str, ControlAnswer]:
    """Command all workers, also those that join while the others are asked; each one's answer, by its id.

    Raises:
        UsageError: no worker serves the model.
        ModelRefused: an engine cannot do it.
        GymError: a worker did not answer, or its engine failed; the others may have done it.
    """
    answers: dict[str, ControlAnswer] = {}
    for _ in range(ROUNDS):
        new = [worker for worker in await workers() if worker not in answers]
        if not new:
            return answers
        # The watcher of deaths runs for ever; `background` cancels it when all have answered.
        async with background() as tasks:
            tasks.start_soon(_fail_without, workers, new)
            answers |= await control(bus, new, command, limit_s=limit_s)
    raise ModelUnavailable(
        f"workers kept joining for {ROUNDS} rounds; not all have new weights", stage="model"
    )


async def update(bus: Bus, workers: Workers, path: str, version: str, *, model: str, limit_s: float) -> None:
    """Have all engines load the weights at ``path`` and name them; those that start later do so too.

    Raises:
        GymError: as `commanded`, or the workers do not agree.
    """
    _require_name(version)
    command = Control(op="update", path=path, version=version)
    async with stored(bus, model, command):
        require_agreement(await commanded(bus, workers, command, limit_s=limit_s), version)


async def _fail_without(workers: Workers, asked: Sequence[str]) -> None:
    """Fail when a worker that was asked is gone: its answer would be awaited until the limit."""
    while True:
        await anyio.sleep(WORKERS_LOOK_S)
        gone = set(asked).difference(await workers())
        if gone:
            raise ModelUnavailable(f"{', '.join(sorted(gone))} died before it answered", stage="model")


@asynccontextmanager
async def paused(
    bus: Bus, workers: Workers, version: str, *, model: str, limit_s: float
) -> AsyncGenerator[None]:
    """Generation is paused as long as this context lasts; then the engines' weights are named ``version``.

    If the body raises, generation stays paused: the weights may be half changed, and nothing must be sampled
    from them.

    Raises:
        GymError: as `update`.
    """
    _require_name(version)
    try:
        answers = await commanded(bus, workers, Control(op="pause"), limit_s=limit_s)
        serving = sorted(worker for worker, answer in answers.items() if not answer.paused)
        if serving:
            raise ModelUnavailable(f"not paused: {', '.join(serving)}", stage="model")
    # Nothing has changed yet, so the workers that are paused may go on.
    except GymError as error:
        await _resume_after(error, bus, workers, limit_s)
        raise
    try:
        yield
    # Also for Ctrl-C: the note says that the engines wait.
    except BaseException as error:
        error.add_note(
            "generation stays paused, as the weights may be half changed: gym-runtime weights resume"
        )
        raise
    command = Control(op="set_version", version=version)
    # Named while they are paused: no answer carries the old name with the new weights.
    async with stored(bus, model, command):
        await commanded(bus, workers, command, limit_s=limit_s)
    require_agreement(await commanded(bus, workers, Control(op="resume"), limit_s=limit_s), version)


def require_agreement(answers: Mapping[str, ControlAnswer], version: str) -> None:
    """
    Raises:
        ModelUnavailable: a worker has another version, or is paused; it names each.
    """
    wrong = [
        f"{worker} has version '{answer.version}'{' and is paused' if answer.paused else ''}"
        for worker, answer in sorted(answers.items())
        if answer.version != version or answer.paused
    ]
    if wrong:
        raise ModelUnavailable(
            f"{len(wrong)} of {len(answers)} workers do not serve version '{version}': {'; '.join(wrong)}",
            stage="model",
        )


async def _resume_after(error: GymError, bus: Bus, workers: Workers, limit_s: float) -> None:
    try:
        await commanded(bus, workers, Control(op="resume"), limit_s=limit_s)
    except GymError as second:
        error.add_note(f"workers that were paused were not resumed either: {second}")


def _require_name(version: str) -> None:
    if not version:
        raise UsageError("version is empty: name the weights, such as 'step-12'")
