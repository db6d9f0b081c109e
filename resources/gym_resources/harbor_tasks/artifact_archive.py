"""What of an agent's archive the box of a separate verifier gets.

An agent that is root in its box can forge the archive, so nothing that it says is believed: it is read here,
and a new one is written of the declared files and folders alone. Of links, only those stay that cannot leave
what was declared. Otherwise a link to the expected answer would be judged as the answer. `tarfile` does not
read it: it follows extended headers, for which forged archives cost it hours.

Source: tar(5) of libarchive, for the formats ustar, GNU and pax; Harbor 0.26, which leaves out links that
lead out of an artifact, and special files.
"""

from __future__ import annotations

import io
import os
import tarfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BLOCK = 512
MAX_PATH_BYTES = 4096
_SHOWN = 5
_FIELDS = ((100, 8), (108, 8), (116, 8), (136, 12))
"""Of a header: the places and lengths of mode, user, group and time."""
_FILES, _HARD, _SYMBOLIC, _FOLDER = (b"0", b"\0", b"7"), b"1", b"2", b"5"
_LONG_NAME, _LONG_LINK, _EXTENDED = b"L", b"K", b"x"


class Member(NamedTuple):
    """A file, folder or link of an archive, with its path and the place of its content there."""

    path: bytes
    kind: bytes
    link: bytes
    begin: int
    size: int
    header: bytes


def only(archive: bytes, declared: Sequence[str]) -> tuple[bytes, list[str]]:
    """A new archive of what was declared, and some paths that are left out of it.

    Args:
        declared: paths from the root.

    Raises:
        ValueError: it is no archive.
    """
    roots = [_path(os.fsencode(one)) or b"" for one in declared]
    kept, links = dict[bytes, Member](), dict[bytes, Member]()
    left_out: list[bytes] = []
    for one in _members(archive):
        path = _path(one.path)
        if path is None or not any(_within(path, root) for root in roots):
            left_out.append(one.path)
        elif path in kept or path in links:
            continue  # of a file that was declared twice
        elif one.kind == _SYMBOLIC:
            links[path] = one
        elif one.kind in (*_FILES, _FOLDER) or (one.kind == _HARD and _is_file(one.link, kept)):
            kept[path] = one
        else:
            left_out.append(one.path)
    names = sorted(kept)
    for path, one in links.items():
        below = bisect_left(names, path + b"/")
        followed = below < len(names) and names[below].startswith(path + b"/")
        if followed or not any(_within(path, root) and _stays(path, root, one.link) for root in roots):
            left_out.append(one.path)
        else:
            kept[path] = one  # behind all files, so that none is written through it
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as made:
        for path, one in kept.items():
            content = archive[one.begin : one.begin + one.size] if one.kind in _FILES else b""
            made.addfile(_entry(path, one, len(content)), io.BytesIO(content))
    return buffer.getvalue(), [one[:100].decode(errors="replace") for one in left_out[:_SHOWN]]


def _entry(path: bytes, one: Member, size: int) -> tarfile.TarInfo:
    made = tarfile.TarInfo(os.fsdecode(path) or ".")
    made.type = tarfile.REGTYPE if one.kind in _FILES else one.kind
    link = (_path(one.link) or b"") if one.kind == _HARD else one.link
    made.size, made.linkname = size, os.fsdecode(link)
    mode, uid, gid, mtime = (_number(one.header[at : at + width]) for at, width in _FIELDS)
    made.mode = mode & 0o1777  # without the rights of its owner for all that run it
    made.uid, made.gid, made.mtime = uid & 0x7FFFFFFF, gid & 0x7FFFFFFF, mtime & 0xFFFFFFFF
    return made


def _members(archive: bytes) -> Iterator[Member]:
    at, name, link, extended = 0, b"", b"", dict[bytes, bytes]()
    while at + BLOCK <= len(archive):
        header = archive[at : at + BLOCK]
        if not header.strip(b"\0"):
            return
        kind, begin = header[156:157], at + BLOCK
        size = _decimal(extended[b"size"]) if b"size" in extended else _number(header[124:136])
        size = size if kind not in (_HARD, _SYMBOLIC, b"3", b"4", _FOLDER, b"6") else 0
        at = begin + -(-size // BLOCK) * BLOCK
        if begin + size > len(archive):
            raise ValueError("it ends in the middle of a file")
        if kind in (_LONG_NAME, _LONG_LINK, _EXTENDED):
            content = archive[begin : begin + min(size, 16 * MAX_PATH_BYTES)]
            if kind == _EXTENDED:
                extended = _records(content)
            elif kind == _LONG_NAME:
                name = content.rstrip(b"\0")
            else:
                link = content.rstrip(b"\0")
            continue
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
        short = b"/".join(filter(None, (prefix, _text(header[:100]))))
        path = extended.get(b"path") or name or short
        target = extended.get(b"linkpath") or link or _text(header[157:257])
        yield Member(path, kind, target, begin, size, header)
        name, link, extended = b"", b"", {}


def _records(content: bytes) -> dict[bytes, bytes]:
    """Those of a pax header: ``LENGTH KEY=VALUE`` and the end of a line."""
    found, at = dict[bytes, bytes](), 0
    while at < len(content):
        space = content.find(b" ", at, at + 20)
        length = _decimal(content[at : max(at, space)])
        if length <= space - at:
            raise ValueError("an extended header cannot be read")
        key, _, value = content[space + 1 : at + length - 1].partition(b"=")
        found[key] = value
        at += length
    return found


def _number(field: bytes) -> int:
    if field[:1] in (b"\x80", b"\xff"):  # in base 256, as GNU tar writes large numbers
        return int.from_bytes(field[1:], "big") if field[:1] == b"\x80" else 0
    text = field.strip(b" \0") or b"0"
    if not text.isdigit():  # `int` also takes a sign, and a negative size would be read for ever
        raise ValueError("a header cannot be read")
    return int(text, 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 12:
        raise ValueError("an extended header cannot be read")
    return int(text)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _path(name: bytes) -> bytes | None:
    """A path from the root, without what does not change it; None if it is no such path."""
    if len(name) > MAX_PATH_BYTES or b"\0" in name:
        return None
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    return None if b".." in parts else b"/".join(parts)


def _within(path: bytes, root: bytes) -> bool:
    return not root or path == root or path.startswith(root + b"/")


def _is_file(link: bytes, kept: dict[bytes, Member]) -> bool:
    found = kept.get(_path(link) or b"")
    return found is not None and found.kind in _FILES


def _stays(path: bytes, root: bytes, target: bytes) -> bool:
    """Whether a link leads to what is below the root, wherever the other links that stay lead.

    Its folder is a real one, so ``..`` at the beginning is what it seems; behind a name it may not be.
    """
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = next((place for place, part in enumerate(parts) if part != b".."), len(parts))
    depth = path.count(b"/") - (root.count(b"/") + 1 if root else 0)
    return (
        0 < len(target) <= MAX_PATH_BYTES
        and not target.startswith(b"/")
        and b"\0" not in target
        and b".." not in parts[up:]
        and up <= depth
    )
