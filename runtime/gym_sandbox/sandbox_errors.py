"""What can go wrong with a sandbox, sorted by whose fault it is.

    SandboxError
    ├── SetupError            this machine's or its settings': it cannot isolate, or has no engine
    ├── StartError            this machine's: a sandbox, a container or its engine does not start
    ├── Interrupted           a signal's: something outside has ended a sandbox or a container
    ├── TooManyInterpreters   the worker's: as many sessions are alive as it may have
    ├── NotPrepared           a verifier's: it could not import what it needs
    ├── ProcessDied           the called code's: its process ended or was killed during a call
    └── FunctionRaised        the called code's: it raised

A program that fails or exceeds its limits is no error: `Result` and `Execution` say how it ended. A call that
takes too long raises `TimeoutError`. Who uses this package translates these errors into its own at one place.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeError)
"""What msgspec raises for a text that it cannot decode: malformed, nested too deep, or not UTF-8."""


class SandboxError(Exception):
    """Any error of this package. ``retryable``: the same call may succeed later."""

    retryable: ClassVar[bool] = False


class SetupError(SandboxError):
    """This machine or a setting does not allow it; the message has the remedy."""


class StartError(SandboxError):
    """A sandbox, a container or its engine does not start."""


class Interrupted(SandboxError):
    """Something outside of a sandbox has ended what ran there; nothing is known of its result."""

    retryable = True


class TooManyInterpreters(SandboxError):
    """As many interpreters are alive in this worker as it may have."""

    retryable = True


class NotPrepared(SandboxError):
    """A process could not prepare for calls of its kind: it ended, or took too long."""


class ProcessDied(SandboxError):
    """The process ended or was killed during a call; the message says why."""


class FunctionRaised(SandboxError):
    """The called function, or its preparation, raised.

    The process says all of this, and hostile code may have taken it over: trust none of it.

    Attributes:
        name: of the error's kind, as the verifier's ``explain`` named it.
        stage: where it happened; may be empty.
    """

    def __init__(self, name: str, message: str, stage: str = "") -> None:
        super().__init__(message)
        self.name, self.stage = name, stage
