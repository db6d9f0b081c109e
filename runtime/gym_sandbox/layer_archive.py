"""The archives in which layers of a container's files travel: GNU tar, compressed by zstd.

An archive begins with ``folders`` (the names of changed folders) and ``names`` (what is in them); then comes
what was changed. Names are text with surrogate escapes, begin with ``./``, and belong to the folder in which
the process is. Programs such as tar can unpack what is made here; archives that containers have made with
them are left to them.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MOST_BYTES = 1 << 30
"""Of all files that were changed, before they are compressed."""
CHUNK_BYTES = 1 << 18
GZIP = b"\x1f\x8b"
"""How layers begin that containers have made by themselves."""
OWN = ".gym-"
"""How the names in ``/tmp`` begin that belong to a client of the container."""
ZEROS = bytes(CHUNK_BYTES)

_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s8s32s32s183x")
_LETTERS = {
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}


class Failed(Exception):
    """It cannot be done; the worker is told why."""


def names(folders: Iterable[str], gone: set[str]) -> list[str]:
    """What is in these folders: a letter for its kind, and its name. ``gone`` gets those that are not."""
    found: list[str] = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if not name.startswith(f"./tmp/{OWN}"):
                        found.append(f"{_letter(entry)} {name}")
        except (FileNotFoundError, NotADirectoryError):
            gone.add(folder)
    return found


def _letter(entry: os.DirEntry[str]) -> str:
    # The first ones are known without a look at the entry.
    if entry.is_file(follow_symlinks=False):
        return "f"
    if entry.is_dir(follow_symlinks=False):
        return "d"
    return _LETTERS[stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)]


# -- packing --------------------------------------------------------------------------------------------


class Written:
    """An archive that is sent in compressed frames."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._made = zstd.ZstdCompressor(1)
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        self._waiting += self._made.compress(data)
        if len(self._waiting) >= CHUNK_BYTES:
            self._send(bytes(self._waiting))
            self._waiting.clear()

    def end(self) -> bytes:
        """The last frame, which is not sent."""
        return bytes(self._waiting + self._made.flush())


def padding(size: int) -> bytes:
    return bytes(-size % 512)


def header(
    name: str, kind: bytes, mode: int, user: int, group: int, size: int, seconds: int, link: str = ""
) -> bytes:
    """The block that begins an entry of a tar archive, after those for names that are too long for it."""
    place, target = os.fsencode(name), os.fsencode(link)
    longer = b""
    for letter, told in ((b"L", place), (b"K", target)):
        if len(told) > 100:
            content = told + b"\0"
            longer += _block(b"././@LongLink", letter, 0, 0, 0, len(content), 0, b"")
            longer += content + padding(len(content))
    return longer + _block(place[:100], kind, mode, user, group, size, seconds, target[:100])


def _block(
    name: bytes, kind: bytes, mode: int, user: int, group: int, size: int, seconds: int, link: bytes
) -> bytes:
    fields = (
        *(name, b"%07o\0" % mode, _number(user, 8), _number(group, 8), _number(size, 12)),
        *(_number(seconds, 12), b"        ", kind, link, b"ustar  \0", b"", b""),
    )
    block = _HEADER.pack(*fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _number(value: int, width: int) -> bytes:
    if value < 8 ** (width - 1):
        return b"%0*o\0" % (width - 1, value)
    return b"\x80" + value.to_bytes(width - 1, "big")


# -- unpacking ------------------------------------------------------------------------------------------


class Archive:
    """An archive that comes in compressed frames, the last one empty."""

    def __init__(self, first: bytes, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._opened = zstd.ZstdDecompressor()
        self._unread = first
        self._ready = bytearray()
        self.made_here = not self._unread.startswith(GZIP)

    def read(self, size: int) -> bytes:
        while len(self._ready) < size:
            if self._opened.needs_input and not self._unread:
                self._unread = self._receive()
            if self._opened.eof or (self._opened.needs_input and not self._unread):
                raise Failed("an archive ends early")
            self._ready += self._opened.decompress(self._unread, CHUNK_BYTES)
            self._unread = b""
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

    def finish(self) -> None:
        while self._receive():
            pass


class _Entry(NamedTuple):
    name: str
    kind: bytes
    mode: int
    user: int
    group: int
    size: int
    seconds: int
    link: str


def unpack(first: bytes, receive: Callable[[], bytes], *, owners: bool) -> bool:
    """Bring files to the state of an archive; False for one that was not made here.

    Args:
        first: the first frame of it; ``receive`` gets the next ones, of which the last is empty.
        owners: files get their owners, too.
    """
    archive = Archive(first, receive)
    if not archive.made_here:
        archive.finish()
        return False
    folders, kept = _listed(archive, "folders"), set(_listed(archive, "names"))
    for folder in folders:
        if os.path.islink(folder):
            os.unlink(folder)
    for one in names(folders, set()):
        if one not in kept:
            _remove(one[2:])
    ended: list[_Entry] = []
    while (entry := _next_entry(archive)) is not None:
        _make(archive, entry, owners=owners)
        if entry.kind == b"5":
            ended.append(entry)
    # What is put into a folder changes its time, and its mode may forbid it.
    for entry in reversed(ended):
        os.chmod(entry.name, entry.mode)
        os.utime(entry.name, (entry.seconds, entry.seconds))
    archive.finish()
    return True


def _make(archive: Archive, entry: _Entry, *, owners: bool) -> None:
    name = entry.name
    # A folder that moved while it was packed has no entry; it is packed as a whole the next time.
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    if entry.kind == b"5":
        if os.path.islink(name) or (os.path.lexists(name) and not os.path.isdir(name)):
            os.unlink(name)
        with suppress(FileExistsError):
            os.mkdir(name, 0o700)
    else:
        with suppress(FileNotFoundError):
            _remove(name)
        if entry.kind == b"1":
            os.link(entry.link, name, follow_symlinks=False)
            return
        if entry.kind == b"2":
            os.symlink(entry.link, name)
            os.utime(name, (entry.seconds, entry.seconds), follow_symlinks=False)
        else:
            _write(archive, entry)
    if owners:
        os.chown(name, entry.user, entry.group, follow_symlinks=False)
    if entry.kind == b"0":  # after the owner, whose change takes some bits away
        os.chmod(name, entry.mode)
        os.utime(name, (entry.seconds, entry.seconds))


def _write(archive: Archive, entry: _Entry) -> None:
    file = os.open(entry.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        left = entry.size
        while left:
            piece = archive.read(min(left, CHUNK_BYTES))
            left -= len(piece)
            if piece == ZEROS[: len(piece)]:
                os.lseek(file, len(piece), os.SEEK_CUR)  # a hole
                continue
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(file, rest) :]
        os.ftruncate(file, entry.size)
    finally:
        os.close(file)
    archive.read(-entry.size % 512)


def _remove(name: str) -> None:
    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name)
    else:
        os.unlink(name)


def _listed(archive: Archive, name: str) -> list[str]:
    entry = _next_entry(archive)
    if entry is None or entry.name != name or entry.size > MOST_BYTES:
        raise Failed(f"an archive has no {name}")
    content = archive.read(entry.size)
    archive.read(-entry.size % 512)
    return [os.fsdecode(one) for one in content.split(b"\0")[:-1]]


def _next_entry(archive: Archive) -> _Entry | None:
    """The next entry of an archive; None at its end."""
    longer: dict[bytes, str] = {}
    while True:
        fields = _HEADER.unpack(archive.read(512))
        kind, size = fields[7], _value(fields[4])
        if not fields[0].strip(b"\0"):
            return None
        if kind not in (b"L", b"K"):
            break
        longer[kind] = os.fsdecode(archive.read(size).rstrip(b"\0"))
        archive.read(-size % 512)
    name, link = (os.fsdecode(fields[place].rstrip(b"\0")) for place in (0, 8))
    mode, user, group = (_value(fields[place]) for place in (1, 2, 3))
    name, link = longer.get(b"L", name), longer.get(b"K", link)
    return _Entry(name, kind, mode, user, group, size, _value(fields[5]), link)


def _value(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.rstrip(b"\0 ") or b"0", 8)
