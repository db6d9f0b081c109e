"""The weights that a model's engines are to have: one that starts later loads them.

It may be a replica that is added, or one whose worker died. The record ``runs.weights.POOL`` at the broker
says where they are. A trainer stores it before it commands the workers that are there; a worker loads it
before it takes its first call, and looks again once it has announced itself. So a worker that starts during
an update has the new weights, by one of the two.

Weights that a trainer transfers itself are at no path, and weights without a version's name cannot be told
from others: then an engine that starts later has those that it starts with.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from gym_runtime.bus.interface import Bus
from gym_runtime.errors import GymError
from gym_runtime.logs import logger
from gym_runtime.messages.calls import Control, ControlAnswer
from gym_runtime.messages.names import token
from gym_runtime.messages.stored_records import WEIGHTS, CurrentWeights, encode_current_weights
from gym_runtime.workers.adapter import Controllable


@asynccontextmanager
async def stored(bus: Bus, model: str, command: Control) -> AsyncGenerator[None]:
    """Store what a command says of a model's weights, while it is carried out; undone if that fails."""
    if command.op not in ("update", "set_version"):
        yield
        return
    before = await current(bus, model)
    wanted = CurrentWeights(path=command.path, version=command.version)
    await _store(bus, model, wanted if wanted.version else CurrentWeights())
    try:
        yield
    except BaseException:
        # A caller that was cancelled does not know which weights the engines have: as before a failure.
        with anyio.CancelScope(shield=True):
            await _store(bus, model, before)
        raise


async def current(bus: Bus, model: str, *, nearest: bool = False) -> CurrentWeights:
    """What is stored of a model's weights; ``nearest`` as for `Bus.latest`."""
    found = await bus.latest(_subject(model), nearest=nearest)
    weights = WEIGHTS.read(found[0]) if found else None
    # One that cannot be read says of no weights: an engine keeps those that it has, until they are updated.
    return weights or CurrentWeights()


async def load_current(bus: Bus, model: str, engine: Controllable, version: str) -> ControlAnswer | None:
    """Have an engine load what is stored, until it has the newest; None if it has that already.

    Args:
        version: of the weights that it has.

    An engine that cannot load them keeps those that it has. The log says so, and its rollouts name their
    version.
    """
    answer = None
    try:
        # A model worker may read this one subject of any replica, and nothing else.
        # A loop: the trainer may have stored newer weights while these were loaded.
        while (wanted := await current(bus, model, nearest=True)).path and wanted.version != version:
            logger().info("the engine loads the current weights", path=wanted.path, version=wanted.version)
            answer = await engine.control(Control(op="update", path=wanted.path, version=wanted.version))
            version = wanted.version
    except GymError as error:
        logger().error("the engine does not have the current weights; update them again", error=str(error))
    return answer


async def _store(bus: Bus, model: str, weights: CurrentWeights) -> None:
    await bus.append(_subject(model), encode_current_weights(weights))


def _subject(model: str) -> str:
    return f"runs.weights.{token(model, 'model')}"
