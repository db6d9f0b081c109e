"""The event loop of a command."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


def run_async(main: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Run a coroutine function to its end, on uvloop where there is one."""
    return anyio.run(main, *arguments, backend_options={"use_uvloop": sys.platform != "win32"})
