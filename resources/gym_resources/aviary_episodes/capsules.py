"""Capsules: folders with the data of a question, some of our own, the others in an asset's folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec
from gym_runtime import Asset, TaskError
from gym_runtime.assets import find, folder, missing
from gym_runtime.errors import UNREADABLE

SHIPPED = Path(__file__).parent / "capsules"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
K = TypeVar("K")


def is_path(name: str) -> bool:
    """Whether a name is that of a folder below another one.

    >>> is_path("CapsuleData-1"), is_path("a/b"), is_path("../a"), is_path("/a"), is_path("")
    (True, True, False, False, False)
    """
    return all(_NAME.fullmatch(part) for part in name.split("/"))


def capsule(asset: Asset, environment: str, names: Sequence[str]) -> Path:
    """The folder of a capsule, which has one of these names.

    Raises:
        AssetMissing: the folder is missing.
    """
    for place in (SHIPPED, folder(asset)):
        for name in names:
            if is_path(name) and (place / name).is_dir():
                return (place / name).resolve()
    raise missing(asset, environment, names[0])


def problem(asset: Asset, environment: str, file: str, index: int, kind: type[K]) -> K:
    """A problem of the file that belongs to the capsules, by its line.

    Raises:
        AssetMissing: the file is missing.
        TaskError: it has no such line, or another one than was expected.
    """
    [path] = find(asset, environment, file)
    lines = _lines(path, path.stat().st_mtime_ns)
    if index >= len(lines):
        raise TaskError(f"task_idx is {index}; {file} has {len(lines)} tasks, from 0 on")
    try:
        return msgspec.json.decode(lines[index], type=kind)
    except UNREADABLE as error:
        raise TaskError(f"{file}, line {index + 1}: {error}") from error


@lru_cache(maxsize=8)
def _lines(path: Path, changed_ns: int) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.strip()]
