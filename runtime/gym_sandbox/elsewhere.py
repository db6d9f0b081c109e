"""Containers that run elsewhere: who starts them, and what it is asked.

This package knows no service. A package that has boxes of one gives an object of `Boxes` to `offer`; a
`gym_sandbox.Container` that names a provider is then started by it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from gym_sandbox.container_engines import ENGINES, SETTING, Network
from gym_sandbox.sandbox_errors import SetupError


class Shell(Protocol):
    """The first process of a container: it reads requests and writes answers. `Child` is one."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            EndOfProcess: it no longer reads.
        """
        ...

    async def read(self, *, errors: bool = False) -> bytes:
        """The next bytes of its output, or of its errors; empty at the end."""
        ...

    async def wait(self) -> int:
        """Wait for its end; its exit code."""
        ...

    async def end(self) -> None:
        """End it. Repeatable."""
        ...

    async def close(self) -> None:
        """`end` it and give back what it holds. Repeatable."""
        ...


class Boxes(Protocol):
    """Starts containers at services."""

    def start(self, provider: str, image: str, program: Sequence[str], network: Network) -> Shell:
        """Begin to start one, with this first process.

        Raises:
            SetupError: there is no such provider.
        """
        ...


_offered: list[Boxes] = []


@contextmanager
def offer(boxes: Boxes) -> Generator[None]:
    """Containers of this process that name a provider are started by these boxes, until the block ends."""
    _offered.append(boxes)
    try:
        yield
    finally:
        _offered.remove(boxes)


def named(provider: str, image: str | None) -> str:
    """The provider of a container: the given one, else the one that the setting names; empty for none.

    The setting is for images only: a container without one is a sandbox of this machine.
    """
    setting = os.environ.get(SETTING, "") if image is not None else ""
    found = provider or setting
    return "" if found in ENGINES else found


def start(provider: str, image: str | None, program: Sequence[str], network: Network) -> Shell:
    """Begin to start a container at a provider.

    Raises:
        SetupError: there are no boxes here, no such provider, or no image is named.
    """
    if image is None:
        raise SetupError(f"a container of the provider '{provider}' needs an image")
    if not _offered:
        raise SetupError(
            f"'{provider}' is neither of {', '.join(ENGINES)}, and boxes of a provider are leased by the "
            f"workers of environments only: unset {SETTING}, or use it in a session"
        )
    return _offered[-1].start(provider, image, program, network)
