"""A kind of verifications: its function, its modules, its preparation and its files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gym_sandbox import frames


class Verifier(msgspec.Struct, frozen=True):
    """A kind of verifications; equal ones share their processes.

    Attributes:
        start: what its fork server is told; each variable names a folder that it reads.
        sources: the modules that it consists of; installed packages are visible in any case.
    """

    start: frames.Start
    sources: tuple[Path, ...] = ()


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
    existing = {name: place for name, place in (folders or {}).items() if os.path.isdir(place)}
    start = frames.Start(
        function=frames.name(function),
        explain=frames.name(explain),
        prepare=frames.name(prepare) if prepare else "",
        arguments=tuple(arguments),
        variables=tuple((name, os.path.abspath(place)) for name, place in existing.items()),
    )
    return Verifier(start, (Path(inspect.getfile(function)), *sources))
