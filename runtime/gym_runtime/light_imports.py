"""Packages are imported without what they would import besides and never need here.

structlog imports rich, for tracebacks with local variables, which are never shown; nats-py imports aiohttp,
for websockets, by which no broker is reached. That took 60 and 120 ms of CPU, in every command and in every
supervisor. Both do without the other package, as where it is not installed.
"""

from __future__ import annotations

import sys
from importlib import import_module


def load(package: str, *, without: str) -> None:
    """Import a package as if another one were not installed; what is imported already stays as it is."""
    if package in sys.modules or without in sys.modules:
        return
    sys.modules[without] = None  # pyright: ignore[reportArgumentType] - as Python's documentation says
    try:
        import_module(package)
    finally:
        del sys.modules[without]
