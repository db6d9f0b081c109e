"""What a kind of verifications is: which function, of which modules, prepared how, with which files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gym_runtime.sandbox import calls


class Verifier(msgspec.Struct, frozen=True):
    """A kind of verifications; equal ones share their warm processes.

    Attributes:
        function: the one that is called, by its name.
        prepare: one that is called before the first request, if any, with ``arguments``.
        sources: the modules that it consists of; what is installed beside it is there anyway.
        variables: environment variables that it sees, each of which names a folder that it reads.
    """

    function: str
    prepare: str = ""
    arguments: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    variables: dict[str, str] = {}

    @property
    def kind(self) -> tuple[object, ...]:
        """What tells it from others."""
        return self.function, self.prepare, self.arguments, self.sources, tuple(self.variables.items())


def verifier(
    function: Callable[..., Any],
    prepare: Callable[..., object] | None = None,
    arguments: Sequence[str] = (),
    *,
    sources: Sequence[Path] = (),
    folders: Mapping[str, str] | None = None,
) -> Verifier:
    """The verifier that calls a function.

    Args:
        folders: environment variables and the folders that they name; one that does not exist is left out.

    Raises:
        TypeError: the function is not that of a module.
    """
    variables = {
        name: os.path.abspath(place) for name, place in (folders or {}).items() if os.path.isdir(place)
    }
    return Verifier(
        function=calls.name(function),
        prepare=calls.name(prepare) if prepare else "",
        arguments=tuple(arguments),
        sources=(Path(inspect.getfile(function)), *sources),
        variables=variables,
    )
