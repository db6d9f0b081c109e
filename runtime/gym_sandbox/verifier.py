"""A kind of verifications: its function, its modules, its preparation and its files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from gym_sandbox import frames


class Verifier(msgspec.Struct, frozen=True, dict=True):
    """A kind of verifications; equal ones share their processes.

    Attributes:
        function: the name of the function that is called.
        explain: the name of the function that describes, in the fork, the other function's exception.
        prepare: the name of a function that is called with ``arguments`` before the first request, or empty.
        sources: the modules that it consists of; installed packages are visible in any case.
        variables: its environment variables, each of which names a folder that it reads.
    """

    function: str
    explain: str
    prepare: str = ""
    arguments: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    variables: dict[str, str] = {}

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """The values that distinguish it from other kinds."""
        return (
            self.function,
            self.explain,
            self.prepare,
            self.arguments,
            self.sources,
            tuple(self.variables.items()),
        )


def verifier(
    function: Callable[..., Any],
    prepare: Callable[..., object] | None = None,
    arguments: Sequence[str] = (),
    *,
    explain: frames.Explain = frames.explained,
    sources: Sequence[Path] = (),
    folders: Mapping[str, str] | None = None,
) -> Verifier:
    """The verifier that calls a function.

    Args:
        explain: returns an exception's description for the worker: the fields of `FunctionRaised`.
        folders: environment variables and the folders that they name; one that does not exist is left out.

    Raises:
        TypeError: the function is not a module's.
    """
    # Absolute: the process has another working directory.
    variables = {
        name: os.path.abspath(place) for name, place in (folders or {}).items() if os.path.isdir(place)
    }
    return Verifier(
        function=frames.name(function),
        explain=frames.name(explain),
        prepare=frames.name(prepare) if prepare else "",
        arguments=tuple(arguments),
        sources=(Path(inspect.getfile(function)), *sources),
        variables=variables,
    )
