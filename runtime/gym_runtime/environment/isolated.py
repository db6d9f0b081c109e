"""Heavy verification: in processes that are killed from outside when they take too long.

Symbolic mathematics and backtracking expressions can run for ever and hold the interpreter's lock, so no
thread and no coroutine can bound them. They run in the warm processes of `gym_runtime.processes`. An input
that has killed `DEATHS_AT_MOST` of them is quarantined: it is refused at once, by this worker, from then on.
Code that a model wrote is another matter: it belongs into `gym_runtime.sandbox`.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.replay import rejudge
from gym_runtime.environment.roles import Models
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import ResourceError
from gym_runtime.processes.killable import NotPrepared, ProcessDied, call_killable

DEATHS_AT_MOST = 2
REMEMBERED_AT_MOST = 10_000
_MADE_UP = {"id", "call_id"}
_R = TypeVar("_R")
_deaths: OrderedDict[str, int] = OrderedDict()


class _Response(msgspec.Struct, frozen=True):
    output: list[dict[str, msgspec.Raw]]


_decode_output = msgspec.json.Decoder(_Response).decode


async def verify_isolated(environment: str, row: bytes, response: bytes, timeout_s: float) -> Verdict:
    """The verdict of an environment, by its name or its module's path, on a recorded rollout.

    In the process a session is opened from the row, the recorded calls are replayed if it has state, and
    the response is judged. Cancelling kills the process.

    Raises:
        ResourceError: it took longer than ``timeout_s`` seconds, the process died, the input is
            quarantined, or the verifier raised.
        TaskError: the row does not fit.
    """
    try:
        return await run_killable(
            _judge,
            environment,
            row,
            response,
            timeout_s=timeout_s,
            prepare=partial(_load, environment),
            what=f"a rollout of '{Path(environment).stem}'",
            same=(environment, row, _said(response)),
        )
    except TimeoutError as error:
        raise ResourceError(f"verification took longer than {timeout_s:g} s", stage="verify") from error


async def judge_recorded(
    environment: LoadedEnvironment, row: bytes, response: bytes, models: Models
) -> Verdict:
    """The verdict on a recorded rollout as a worker reaches it: in a process if it is heavy, and reviewed.

    Raises:
        GymError: as `verify_isolated`, or as `gym_runtime.environment.replay.rejudge`.
    """
    definition, resource = environment.definition, environment.resource
    if not definition.heavy:
        return await rejudge(resource, row, response, models)
    verdict = await verify_isolated(str(environment.source), row, response, definition.verify_timeout_s)
    return await resource.review(row, response, verdict, models)


async def run_killable(
    function: Callable[..., _R],
    *args: object,
    timeout_s: float,
    prepare: Callable[[], object] | None = None,
    what: str = "",
    same: object = None,
) -> _R:
    """Call a module's function in a process; function, arguments and result must pickle.

    ``prepare`` is called there before, off the clock: the place for imports. By default the function's
    module is imported. ``what`` names the input in errors; ``same`` says which inputs are the same one (it
    pickles), by default those with equal arguments.

    Raises:
        TimeoutError: it took longer than ``timeout_s`` seconds, and its process was killed.
        ResourceError: the process died or could not be had, or the input has killed too many.
        Exception: whatever the function raised.
    """
    identity = args if same is None else same
    digest = hashlib.sha256(pickle.dumps((function, identity))).hexdigest()
    name = f"{what or function.__name__} (sha256 {digest[:12]})"
    if _deaths.get(digest, 0) >= DEATHS_AT_MOST:
        raise ResourceError(f"quarantined: {name} has killed {DEATHS_AT_MOST} processes", stage="verify")
    try:
        prepare = prepare or partial(_import, function.__module__)
        return await call_killable(function, args, prepare, timeout_s)
    except TimeoutError:
        _count(digest)
        raise
    except ProcessDied as error:
        _count(digest)
        raise ResourceError(f"the process that verified died: {error}", stage="verify") from error
    except NotPrepared as error:
        raise ResourceError(f"no process can be had for {name}: {error}", stage="verify") from error


def _said(response: bytes) -> bytes:
    """What a response says, without the names that the engine makes up and that differ each time."""
    try:
        output = _decode_output(response).output
    except msgspec.DecodeError:
        return response
    return msgspec.json.encode(
        [{name: item[name] for name in item if name not in _MADE_UP} for item in output]
    )


def _count(digest: str) -> None:
    _deaths[digest] = _deaths.pop(digest, 0) + 1
    while len(_deaths) > REMEMBERED_AT_MOST:
        _deaths.popitem(last=False)


def _import(module: str) -> None:
    """Runs in the process."""
    importlib.import_module(module)


def _load(environment: str) -> None:
    """Runs in the process."""
    for module in catalogue.environment(environment).definition.imports:
        with suppress(ImportError):  # the verification itself says better what is missing
            importlib.import_module(module)


def _judge(environment: str, row: bytes, response: bytes) -> Verdict:
    """Runs in the process."""
    return anyio.run(rejudge, catalogue.environment(environment).resource, row, response)
