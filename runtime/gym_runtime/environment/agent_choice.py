"""Which agent runs a row: the one that the run names, else the row's ``agent_ref``, else the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class AgentChoice(msgspec.Struct, frozen=True):
    """An agent by its name, with options that it is given."""

    name: str
    options: dict[str, Any] = {}

    def overridden(self, name: str | None, options: Mapping[str, Any]) -> AgentChoice:
        """This choice with what a run says: another agent, or options on top."""
        if name not in (None, self.name):
            return AgentChoice(name, {**options})
        return AgentChoice(self.name, {**self.options, **options}) if options else self


def fitting(known: Mapping[str, T], ref: str) -> T | None:
    """What stands under the longest key that an agent's name begins with, in whole words; None if none does.

    >>> fitting({"sums": 1, "sums_hard": 2}, "sums_hard_agent"), fitting({"sums": 1}, "sumsy_agent")
    (2, None)
    """
    prefixes = [prefix for prefix in known if f"{ref}_".startswith(f"{prefix}_")]
    return known[max(prefixes, key=len)] if prefixes else None
