"""In our own programs, packages are imported without what they would import besides and never need here.

structlog imports rich, for tracebacks with local variables, which are never shown; nats-py imports aiohttp,
for websockets, by which no broker is reached. That took 60 and 120 ms of CPU, in every command and in every
supervisor. Both do without the other package, as where it is not installed. In programs of others, which may
need both, they are imported as they are.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module


def load(package: str, *, without: str) -> None:
    """Import a package, in our own programs as if another one were not installed.

    What is imported already stays as it is.
    """
    if not _is_ours() or package in sys.modules or without in sys.modules:
        return
    sys.modules[without] = None  # pyright: ignore[reportArgumentType] - as Python's documentation says
    try:
        import_module(package)
    finally:
        del sys.modules[without]


def _is_ours() -> bool:
    """Whether this process is the command line or a supervisor with its workers."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = spec.name if spec else os.path.basename(sys.argv[0] if sys.argv else "")
    return name == "gym-runtime" or name.startswith("gym_runtime.")
