"""Walks over a container's files and finds what was changed: for `gym_sandbox.file_packer`, in its forks."""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from gym_sandbox.layer_archive import OWN, Failed, names, zstd

COARSE_CLOCK = 5
"""CLOCK_REALTIME_COARSE, of which files have their times."""
MOST_ENTRIES = 1_000_000
SKIPPED = frozenset({"./proc", "./sys", "./dev"})
SMALL_BYTES = 16 << 10
"""A `Moment` of fewer bytes is not compressed, which would cost more than to make it."""


class Top(NamedTuple):
    """A folder whose files are kept: where it is seen, by a descriptor and a name, and what it is called."""

    folder: int
    name: str


class Moment(NamedTuple):
    """What was seen at a time, which `pack` compares with what it sees later.

    Attributes:
        time_ns: of the kernel's clock; what is changed later has a later time of change.
        folders: their inodes, by their names.
        temporary: a digest of what is in ``/tmp``, whose own time of change means nothing: each command
            has a folder there.
    """

    time_ns: int
    folders: dict[str, int]
    temporary: str

    def encode(self) -> bytes:
        told = json.dumps(self).encode()
        return told if len(told) < SMALL_BYTES else zstd.compress(told, 1)


def decoded(told: bytes) -> Moment:
    """What `Moment.encode` has made."""
    return Moment(*json.loads(told if told.startswith(b"[") else zstd.decompress(told)))


class Listings:
    """The names in folders, kept from one walk to the next for as long as a fork lives.

    A folder has the names that it had if its time of change is not later than the walk that read them.
    """

    def __init__(self) -> None:
        self._time_ns = -1
        self._known: dict[tuple[int, int], list[str]] = {}
        self._now: dict[tuple[int, int], list[str]] = {}

    def names(self, top: int, name: str, info: os.stat_result) -> list[str]:
        """The names in a folder.

        Raises:
            FileNotFoundError: it is gone.
            NotADirectoryError: it has become something else.
        """
        key = info.st_dev, info.st_ino
        found = self._known.get(key) if info.st_ctime_ns <= self._time_ns else None
        if found is None:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                found = os.listdir(folder)
            finally:
                os.close(folder)
        self._now[key] = found
        return found

    def end(self, time_ns: int) -> None:
        """End a walk, which began at this time; what was not asked for is forgotten."""
        self._time_ns, self._known, self._now = time_ns, self._now, {}


def walk(
    top: Top, gone: set[str], since_ns: float, listings: Listings
) -> Iterator[tuple[str, os.stat_result, bool]]:
    """What is in a folder and the folders in it, itself included, on the same file system.

    Args:
        gone: gets the folders that have gone before they were read.
        since_ns: what is no folder, and was not changed since, is left out.
    """
    try:
        own = os.stat(top.name, dir_fd=top.folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    yield top.name, own, True
    waiting, count = [(top.name, own)], 0
    while waiting:
        place, folder = waiting.pop()
        try:
            found = listings.names(top.folder, place, folder)
        except (FileNotFoundError, NotADirectoryError):
            gone.add(place)
            continue
        special = place in (".", "./tmp")
        for one in found:
            name = f"{place}/{one}"
            try:
                info = os.stat(name, dir_fd=top.folder, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                continue
            is_folder = stat.S_ISDIR(info.st_mode)
            if not is_folder and info.st_ctime_ns <= since_ns:
                continue
            if special and (name in SKIPPED or name.startswith(f"./tmp/{OWN}")):
                continue
            if is_folder:
                if info.st_dev != own.st_dev:
                    continue
                waiting.append((name, info))
            yield name, info, is_folder
        count += len(found)
        if count > MOST_ENTRIES:
            raise Failed(f"it has more than {MOST_ENTRIES} files")


def look(tops: list[Top], listings: Listings) -> Moment:
    """What is seen now."""
    time_ns = tick()
    gone = set[str]()
    seen = [one for top in tops for one in walk(top, gone, math.inf, listings)]
    listings.end(time_ns)
    folders = {name: info.st_ino for name, info, folder in seen if folder and name not in gone}
    return Moment(time_ns, folders, temporary())


def tick() -> int:
    """The time; it returns when whatever is changed has a later time, which the kernel counts in ticks."""
    now = time.time_ns()
    while time.clock_gettime_ns(COARSE_CLOCK) <= now:
        time.sleep(0.002)
    return now


def temporary() -> str:
    try:
        mode = os.stat("./tmp", follow_symlinks=False).st_mode
    except FileNotFoundError:
        return ""
    told = "\0".join((str(mode), *sorted(names(["./tmp"], set()))))
    return sha256(os.fsencode(told)).hexdigest()
