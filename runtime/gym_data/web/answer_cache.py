"""A cache of answers on disk, shared by all processes of a user on one machine.

An entry is a file that is named by the SHA-256 of what was asked. It is used for `ANSWER_KEPT_S` seconds. The
files are in 256 folders, and the oldest of a folder are removed when it grows beyond `FOLDER_BYTES`, so the
cache stays below 4 GiB. A file appears whole or not at all; one that cannot be read counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import anyio.to_thread
import msgspec
from gym_runtime.assets import cache_folder
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.own_files import replacing

from gym_data.web.web_request import WebAnswer

ANSWER_KEPT_S = 7 * 24 * 3600.0
"""How long a stored answer is used in place of the service's."""

FOLDER_BYTES = 16 << 20

_decode = msgspec.msgpack.Decoder(WebAnswer).decode
_encode = msgspec.msgpack.Encoder().encode


async def find(asked: bytes) -> WebAnswer | None:
    """The stored answer to a request; None without one that is fresh enough."""
    return await anyio.to_thread.run_sync(_read, _path(asked))


async def add(asked: bytes, answer: WebAnswer) -> None:
    """Keep an answer. A disk that is full or read-only keeps nothing; this is no error."""
    await anyio.to_thread.run_sync(_write, _path(asked), _encode(answer))


def _path(asked: bytes) -> Path:
    name = hashlib.sha256(asked).hexdigest()
    return cache_folder() / "web" / "answers" / name[:2] / name[2:]


def _read(path: Path) -> WebAnswer | None:
    with suppress(OSError, *UNREADABLE):
        if time.time() - path.stat().st_mtime < ANSWER_KEPT_S:
            return _decode(path.read_bytes())
    return None


def _write(path: Path, content: bytes) -> None:
    # It would evict everything else.
    if len(content) > FOLDER_BYTES:
        return
    with suppress(OSError, UsageError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(path.parent, FOLDER_BYTES - len(content))
        with replacing(path, 0o600) as file:
            file.write(content)


def _make_room(folder: Path, size_bytes: int) -> None:
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries)
    total_bytes = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total_bytes <= size_bytes:
            return
        Path(path).unlink(missing_ok=True)
        total_bytes -= size
