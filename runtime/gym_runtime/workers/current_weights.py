"""The current weights of a model: an engine that starts later loads them.

Such an engine may be an added replica, or one whose worker died. The record ``runs.weights.POOL`` at the
broker says where the weights are. A trainer stores the record before it commands the running workers. A
worker loads the weights before it takes its first call, and checks the record again once it has announced
itself. So a worker that starts during an update gets the new weights from the record or from the command.

Weights that a trainer transfers itself are at no path, and weights without a version's name cannot be told
from others: in both cases an engine that starts later keeps the weights with which it starts.
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
    """Store the weights that a command names, while the block executes it; undone if the block fails."""
    if command.op not in ("update", "set_version"):
        yield
        return
    before = await current(bus, model)
    wanted = CurrentWeights(path=command.path, version=command.version)
    await _store(bus, model, wanted if wanted.version else CurrentWeights())
    try:
        yield
    except BaseException:
        # Also when cancelled: as after a failure, the caller does not know which weights the engines have.
        with anyio.CancelScope(shield=True):
            await _store(bus, model, before)
        raise


async def current(bus: Bus, model: str, *, nearest: bool = False) -> CurrentWeights:
    """The stored record of a model's weights; ``nearest`` as for `Bus.latest`."""
    found = await bus.latest(_subject(model), nearest=nearest)
    weights = WEIGHTS.read(found[0]) if found else None
    # An unreadable record counts as none: an engine keeps its weights until the next update.
    return weights or CurrentWeights()


async def load_current(bus: Bus, model: str, engine: Controllable, version: str) -> ControlAnswer | None:
    """Have an engine load the stored weights, until it has the newest; None if it has them already.

    Args:
        version: the version of the engine's weights.

    An engine that cannot load them keeps its weights. The log says so, and its rollouts name their
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
