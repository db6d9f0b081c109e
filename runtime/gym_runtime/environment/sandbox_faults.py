"""The errors of `gym_sandbox` in the runtime's terms. They are translated here and nowhere else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from gym_sandbox.frames import CallFailed, explained
from gym_sandbox.sandbox_errors import (
    FunctionRaised,
    Interrupted,
    SandboxError,
    SetupError,
    StartError,
    TooManyInterpreters,
)

from gym_runtime.errors import Busy, GymError, ResourceError, SessionLost, TaskError, UsageError

_KINDS: dict[type[SandboxError], tuple[type[GymError], str]] = {
    SetupError: (UsageError, ""),
    StartError: (ResourceError, "sandbox"),
    Interrupted: (SessionLost, "sandbox"),
    TooManyInterpreters: (Busy, "tool"),
}
"""Each error's kind and stage; the others are a `ResourceError` of a verification."""


def translated(error: SandboxError) -> GymError:
    """An error of the sandbox as the runtime's."""
    if isinstance(error, FunctionRaised):
        # Not by any name: the fork says it, and could choose an error with another meaning.
        kinds = {kind.__name__: kind for kind in (TaskError, UsageError)}
        return kinds.get(error.name, ResourceError)(str(error), stage=error.stage)
    kind, stage = _KINDS.get(type(error), (ResourceError, "verify"))
    return kind(str(error), stage=stage)


@contextmanager
def translating() -> Generator[None]:
    """Raise the sandbox's exceptions as the runtime's errors.

    Raises:
        GymError: in place of a `SandboxError`.
    """
    try:
        yield
    except SandboxError as error:
        raise translated(error) from error


def explain(error: BaseException) -> CallFailed:
    """A function's exception, for its worker: an error of the runtime keeps its name. Runs in the fork."""
    if isinstance(error, SandboxError):
        error = translated(error)
    if not isinstance(error, GymError):
        return explained(error)
    fault = error.fault()
    return CallFailed(fault.name, fault.message, fault.stage)
