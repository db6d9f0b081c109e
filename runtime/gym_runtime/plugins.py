"""What other packages plug into the engine by entry points: commands, trackers, environments and the like.

The engine knows these packages by name only. Listing imports nothing; a plugin is imported when it is loaded.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from gym_runtime.errors import UsageError

_entry_points = cache(metadata.entry_points)
"""They are read from all distributions, once for all kinds."""


def plugins(kind: str) -> dict[str, EntryPoint]:
    """The entry points of the group ``gym_runtime.KIND``, by name."""
    return {entry.name: entry for entry in _entry_points().select(group=f"gym_runtime.{kind}")}


def packages(kind: str) -> list[str]:
    """The packages that distributions offer under ``gym_runtime.KIND``, each once."""
    return list(dict.fromkeys(entry.value for entry in _entry_points().select(group=f"gym_runtime.{kind}")))


def load_plugin(kind: str, name: str) -> Any:
    """What an entry point names.

    Raises:
        UsageError: no installed package has it.
    """
    known = plugins(kind)
    if name not in known:
        raise UsageError(
            f"no installed package offers '{name}' in the group gym_runtime.{kind}; there are: "
            f"{', '.join(known) or 'none'}"
        )
    return known[name].load()
