"""Recordings of what the outside world answered, to be played again without a network.

A recording is a JSONL file that a person can write as well: one line for each answer, with what was ``asked``
(a page's URL, or ``search: QUERY`` and the like) and its ``text``, or ``base64`` where it is no text. It
never has a key. Several processes may add to one file. Where something was asked twice, the last answer
counts.
"""

from __future__ import annotations

import base64
import fcntl
import os
from functools import lru_cache
from pathlib import Path

import anyio.to_thread
import msgspec
from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.own_files import open_own

from gym_data.web.web_request import WebAnswer


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One line.

    Attributes:
        url: the address after redirects, if it differs from what was asked.
    """

    asked: str
    status: int = 200
    url: str = ""
    media_type: str = "text/html"
    text: str = ""
    base64: str = ""

    def answer(self) -> WebAnswer:
        """The answer that it keeps."""
        body = base64.b64decode(self.base64) if self.base64 else self.text.encode()
        return WebAnswer(
            status=self.status, url=self.url or self.asked, media_type=self.media_type, body=body
        )


_decode = msgspec.json.Decoder(Recorded).decode
_encode = msgspec.json.Encoder().encode


class Recording:
    """A recording at a path, which need not exist until something is added."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def find(self, asked: str) -> WebAnswer | None:
        """The recorded answer; None if the recording has none.

        Raises:
            UsageError: the file is missing, or a line cannot be read.
        """
        found = (await anyio.to_thread.run_sync(self._entries)).get(asked)
        try:
            return found and found.answer()
        except ValueError as error:
            raise UsageError(
                f"the recording {self.path} has no Base64 for '{asked[:200]}': {error}"
            ) from error

    async def add(self, asked: str, answer: WebAnswer) -> None:
        """Keep an answer.

        Raises:
            UsageError: the file cannot be written.
        """
        await anyio.to_thread.run_sync(self._append, asked, answer)

    def _entries(self) -> dict[str, Recorded]:
        try:
            status = self.path.stat()
            return _read(self.path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise UsageError(f"the recording {self.path} cannot be read: {error.strerror}") from error

    def _append(self, asked: str, answer: WebAnswer) -> None:
        try:
            as_text, as_base64 = answer.body.decode(), ""
        except UnicodeDecodeError:
            as_text, as_base64 = "", base64.b64encode(answer.body).decode()
        entry = Recorded(
            asked=asked,
            status=answer.status,
            url="" if answer.url == asked else answer.url,
            media_type=answer.media_type,
            text=as_text,
            base64=as_base64,
        )
        line = _encode(entry) + b"\n"
        try:
            with os.fdopen(open_own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
                # Several processes may add lines; without the lock two could be mixed.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(line)
                file.flush()
        except OSError as error:
            raise UsageError(f"the recording {self.path} cannot be written: {error.strerror}") from error


@lru_cache(maxsize=8)
def _read(path: Path, size_bytes: int, changed_ns: int) -> dict[str, Recorded]:
    # Cached by size and time of change: another process may have added to the file.
    found: dict[str, Recorded] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                entry = _decode(line)
            except UNREADABLE as error:
                raise UsageError(f"{path}:{number}: {error}") from error
            found[entry.asked] = entry
    return found
