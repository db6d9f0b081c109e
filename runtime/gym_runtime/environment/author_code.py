"""An author's code is run and what it returns is checked, here and nowhere else."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
from gym_sandbox.errors import SandboxError
from msgspec import Raw

from gym_runtime.cancellation import contained
from gym_runtime.environment.sandbox_errors import translated
from gym_runtime.environment.tools import ToolError
from gym_runtime.errors import GymError, ResourceError
from gym_runtime.messages.items import user_message
from gym_runtime.places import raised_at

R = TypeVar("R")


async def guarded(stage: str, method: Callable[..., Awaitable[R] | R], *args: object) -> R:
    """Run an author's code, plain or async: its exceptions become `ResourceError`, never a reward.

    So does a cancellation that comes from the code itself (`gym_runtime.cancellation`).
    """
    try:
        async with contained(ResourceError, stage):
            work = method(*args)
            return await work if inspect.isawaitable(work) else cast("R", work)
    except SandboxError as error:
        failure = translated(error)
        failure.stage = failure.stage or stage
        raise failure from error
    except GymError as error:
        error.stage = error.stage or stage
        raise
    except Exception as error:
        # The first frame is this function; the place to report is in the author's code.
        place = raised_at(error.__traceback__ and error.__traceback__.tb_next)
        where = f" ({place})" if place and not isinstance(error, ToolError) else ""
        raise ResourceError(f"{type(error).__name__}: {error}{where}", stage=stage) from error


def returned(value: object, kind: type[R], stage: str) -> R:
    """What an author's code returned, if it is of the right kind.

    Raises:
        ResourceError: it is not.
    """
    if not isinstance(value, kind):
        raise ResourceError(f"{stage} returned {value!r}; it must return a {kind.__name__}", stage=stage)
    return value


def observed(observation: object, stage: str) -> list[Raw]:
    """An episode's observation as items.

    Raises:
        ResourceError: it is not an observation.
    """
    if observation is None:
        return []
    if isinstance(observation, str):
        return [user_message(observation)]
    try:
        items = msgspec.convert(observation, list[dict[str, Any]])
    except msgspec.ValidationError as error:
        raise ResourceError(
            f"{stage} returned the observation {observation!r}; "
            "it must be a text, a list of items (each a dict), or None",
            stage=stage,
        ) from error
    return [Raw(msgspec.json.encode(item)) for item in items]
