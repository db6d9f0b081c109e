"""Images in result rows: inline as ``data:`` URLs, as files beside the rows, or left out.

An image of ``OUT.jsonl`` becomes ``OUT_images/SHA256.png``, so equal ones take the space of one, and the row
has that path, relative to its folder, as the ``image_url``. Rows are hostile, also when they are read back:
only a regular file of this name, with this digest and of a known kind of image, is ever read for one.

Only the texts after ``"image_url":`` are touched; all other bytes of a row stay as they are.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from gym_runtime.errors import UNREADABLE, UsageError
from gym_runtime.messages.images import MAX_BYTES, Image
from gym_runtime.own_files import replacing

Images = Literal["inline", "files", "none"]
SHOWN_BYTES = 64 * 2**20
"""Of the images that are read for one row, together."""

_KEY = rb'("image_url"[ \t]*:[ \t]*")'
# In JSON a quotation mark within a text has a backslash before it, so this finds no text of a model.
_INLINE = re.compile(_KEY + rb'data:image/[a-z+.-]{1,20};base64,([A-Za-z0-9+/=]+)"')
_STORED = re.compile(_KEY + rb'((?:[^"/\\]|\\.){1,1000}_images/[0-9a-f]{64}\.(?:png|jpeg|gif|webp))"')


class ImageStore:
    """Takes the images out of rows that are written.

    Args:
        rows: the file of rows; the folder beside it is made with the first image.
        form: ``files``, or ``none`` to leave an empty ``image_url``.
    """

    def __init__(self, rows: Path, form: Images) -> None:
        self._folder = images_of(rows)
        self._form = form
        self._known: set[str] = set()

    def stored(self, row: bytes) -> bytes:
        """The row as it is written. What is no image of a known kind stays in it.

        Raises:
            UsageError: the disk is full or broken.
        """
        if self._form == "inline":
            return row
        return _INLINE.sub(self._place, row)

    def _place(self, found: re.Match[bytes]) -> bytes:
        if self._form == "none":
            return found[1] + b'"'
        try:
            image = Image(b64decode(found[2], validate=True))
        except ValueError:
            return found[0]
        name = f"{sha256(image.data).hexdigest()}.{image.media_type.removeprefix('image/')}"
        if name not in self._known:
            self._write(name, image.data)
            self._known.add(name)
        return found[1][:-1] + msgspec.json.encode(f"{self._folder.name}/{name}")

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        try:
            self._folder.mkdir(exist_ok=True)
            if _read(self._folder.parent, f"{self._folder.name}/{name}") is None:
                with replacing(path) as file:
                    file.write(data)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None


def images_of(rows: Path) -> Path:
    """The folder with the images of a file of rows."""
    return rows.with_name(f"{rows.stem}_images")


def remove_images(rows: Path) -> None:
    """Remove the images of a file of rows, and nothing else that is in their folder."""
    folder = images_of(rows)
    for path in folder.glob("*.*") if not folder.is_symlink() else ():
        if re.fullmatch("[0-9a-f]{64}", path.stem):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # it is not there, or has other files
        folder.rmdir()


def image_urls(row: bytes, folder: Path) -> dict[str, str]:
    """The images of a stored row that are files, as ``data:`` URLs by their paths in the row.

    Args:
        row: a line of a result file.
        folder: where that file is. A path never leads out of it.
    """
    found: dict[str, str] = {}
    left = SHOWN_BYTES
    for match in _STORED.finditer(row):
        name = _text(match[2])
        if name in found or (data := _read(folder, name, left)) is None:
            continue
        left -= len(data)
        found[name] = str(Image(data).part()["image_url"])
    return found


def with_images(row: bytes, folder: Path) -> bytes:
    """A stored row with its images inline; one that cannot be read stays a path. As `image_urls`."""
    urls = image_urls(row, folder)

    def inline(match: re.Match[bytes]) -> bytes:
        url = urls.get(_text(match[2]))
        return match[0] if url is None else match[1] + url.encode() + b'"'

    return _STORED.sub(inline, row) if urls else row


def _text(written: bytes) -> str:
    try:
        return msgspec.json.decode(b'"' + written + b'"', type=str)
    except UNREADABLE:
        return ""


def _read(folder: Path, name: str, most_bytes: int = MAX_BYTES) -> bytes | None:
    """An image by its path in a row; None if there is no such image."""
    images, _, file = name.partition("/")
    if not file or "/" in file or "\0" in name:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        place = os.open(folder / images, flags | os.O_DIRECTORY)
        try:
            opened = os.open(file, flags, dir_fd=place)
        finally:
            os.close(place)
        with os.fdopen(opened, "rb") as source:
            data = source.read(min(MAX_BYTES, most_bytes) + 1)
        Image(data)
    except (OSError, ValueError):
        return None
    return data if sha256(data).hexdigest() == file.partition(".")[0] and len(data) <= most_bytes else None
