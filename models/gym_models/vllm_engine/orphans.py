"""Processes that a foreign library starts, and that must end with this process, whatever kills it.

vLLM's engine process does not notice when its parent is killed: it would keep its accelerators for ever. So a
shell waits for the end of a pipe that only this process holds open, and kills the remaining processes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def descendants() -> list[int]:
    """The ids of all processes below this one. Needs ``psutil``, which comes with vLLM."""
    children: list[Any] = import_module("psutil").Process().children(recursive=True)
    return [child.pid for child in children]


@contextmanager
def killed_with_us(processes: Iterable[int]) -> Generator[None]:
    """Within the context, these processes are killed at the latest when this one has ended."""
    ids = " ".join(map(str, processes))
    watch = subprocess.Popen(
        ["/bin/sh", "-c", f"cat; kill -9 {ids} 2>/dev/null"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        watch.kill()
        watch.communicate()
