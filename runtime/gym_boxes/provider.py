"""What a provider of boxes does, and how its calls fail.

A provider is a plugin: an entry point of the group ``gym_runtime.boxes`` names a function without arguments
that makes one, from its own environment variables. It knows nothing of leases: it makes boxes with a
label, and lists those whose label begins in a certain way, so that no box is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import msgspec
from gym_runtime import ServiceUnavailable, SessionLost, UsageError
from gym_runtime.plugins import load_plugin

BOX_ID = "[A-Za-z0-9][A-Za-z0-9_.-]*"
"""What a box's id is, as an expression: in a command, an address or a path it is nothing but a name."""

GET_BYTES = 1 << 30
"""The longest file that is read, unless the caller says less."""


class BoxRefused(ServiceUnavailable):
    """The provider has certainly not done what was asked, such as for its limits; it may later.

    Attributes:
        after_s: when it may, in seconds from now; None if the provider does not say.
    """

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message, stage="box")
        self.after_s = after_s


def seconds_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that ``Retry-After`` names; None for a date, or for anything else.

    >>> seconds_after({"Retry-After": "1.5"}), seconds_after({"Retry-After": "²"}), seconds_after({})
    (1.5, None, None)
    """
    said = headers.get("Retry-After", "")
    return float(said) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", said) else None


class BoxUnknown(ServiceUnavailable):
    """The provider's answer is lost: it may have done what was asked, or may still do it."""


class BoxGone(SessionLost):
    """There is no such box, or not any more."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a script ended.

    Attributes:
        exit_code: None if it was killed at its time limit; of most providers also if something else killed
            it, or if it exited with 137, which they cannot tell.
        stdout, stderr: at most as much as the provider keeps.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes


class Found(msgspec.Struct, frozen=True):
    """A box that a provider lists."""

    box: str
    label: str


class Provider(Protocol):
    """A provider of boxes. Each call ends by itself within a minute, `exec` soon after its limit.

    Labels have letters, digits, dots, underscores and hyphens only.

    Raises:
        BoxGone: the box is not there (any more).
        BoxRefused: nothing was done.
        BoxUnknown: the answer is lost.
    """

    async def create(self, template: str, *, label: str, life_s: float, internet: bool = False) -> str:
        """Make a box and return its id (`BOX_ID`). Not idempotent, unless the provider knows labels as names.

        Args:
            template: an image, a template of the provider's, or what `snapshot` has returned.
            life_s: the box may end after so many seconds without `renew`; not with every provider.
            internet: whether it may reach the internet. A provider that cannot do what is asked refuses.
        """
        ...

    async def exec(self, box: str, script: str, *, timeout_s: float, stdin: bytes = b"") -> Ran:
        """Run a shell script to its end, or kill it after ``timeout_s`` seconds."""
        ...

    async def put(self, box: str, path: str, data: bytes) -> None:
        """Write a file, with the folders above it."""
        ...

    async def get(self, box: str, path: str, *, most_bytes: int = GET_BYTES) -> bytes:
        """Read a file.

        Raises:
            ResourceError: the file does not exist, or has more than ``most_bytes``.
        """
        ...

    async def snapshot(self, box: str) -> str:
        """Keep the files of a box as a template; its processes need not go on."""
        ...

    async def forget(self, template: str) -> None:
        """Delete a template that `snapshot` has returned; repeatable."""
        ...

    async def renew(self, box: str, life_s: float) -> None:
        """Let it live for so many seconds from now."""
        ...

    async def end(self, box: str) -> None:
        """End it; repeatable, and no error for one that is gone."""
        ...

    async def list(self, prefix: str) -> Sequence[Found]:
        """All boxes whose labels begin with ``prefix``, paused ones included."""
        ...

    async def aclose(self) -> None:
        """Give back connections; boxes of a service stay."""
        ...


def provider(name: str) -> Provider:
    """The provider that an installed package offers under this name.

    Raises:
        UsageError: no provider has this name, or one of its settings is missing.
    """
    make: Callable[[], Provider] = load_plugin("boxes", name)
    return make()


def load_sdk(package: str) -> Any:
    """The package of a service, which is an extra of the same name.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UsageError(
            f"boxes of {package} need the package '{package}', which is not installed: "
            f"pip install 'gym-runtime[{package}]'"
        ) from None
