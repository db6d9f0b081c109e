"""How the runtime opens the files that it writes: a name never leads it to a file that is not its own.

Otherwise a link or a pipe at a name that the runtime will write to would choose the file that it changes, or
stop it for ever. So a file that is written is a regular file with one name. Folders may be links, and so may
files that are only read. What was opened is what is checked, since a name may change in between.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gym_runtime.errors import UsageError

MODE = 0o664
"""Of new files, less the umask: others must not write the rows that are trained on, whatever the umask is."""

# What the caller has chosen by its nature: an open descriptor, such as ``> calls.jsonl``, or a device.
_STREAMS = frozenset({"/dev", "/dev/fd", "/proc/self/fd"})


def open_own(path: Path, flags: int, mode: int = MODE) -> int:
    """Open a file that the runtime writes; ``flags`` and ``mode`` are those of `os.open`.

    It may also be a device (``/dev/null``) or an open descriptor of this process (``/dev/stdout``).

    Raises:
        UsageError: the name is that of a link or of something else than a file, or the file has other names.
            Nothing was changed.
        OSError: as `os.open`.
    """
    if str(path.parent) in _STREAMS:
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        # O_NONBLOCK: to open a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError:
        refuse_special(path)  # a link, or a pipe without a reader
        raise
    try:
        _check(path, os.fstat(descriptor))
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_special(*paths: Path) -> None:
    """Refuse names that `open_own` would refuse, before anything is changed. A missing file is not refused.

    Raises:
        UsageError: one of the names cannot be written to.
    """
    for path in paths:
        with contextlib.suppress(OSError):  # it is not there, or its folder is not: opening it will say so
            _check(path, path.lstat())


@contextmanager
def replacing(path: Path, mode: int = MODE) -> Generator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends: readers see the old one or all of it.

    If the block raises, the old file stands.

    Raises:
        UsageError, OSError: as `open_own`.
    """
    refuse_special(path)
    # In the same folder, because a rename is atomic within one file system only.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = open_own(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            # Before the rename: after a crash of the machine the name could otherwise lead to an empty file.
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(path: Path) -> None:
    """Remove what a process that was killed within `replacing` has left. The caller holds a lock, so no other
    process writes this file now.
    """
    for draft in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        draft.unlink(missing_ok=True)


def private_folder(path: Path) -> None:
    """Make a folder that only this user can read or write, with its parents.

    Raises:
        UsageError: the folder is a link or another user's, or cannot be made.
    """
    remedy = "set GYM_CACHE to another folder"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(folder).st_uid != os.geteuid():
                raise UsageError(f"{path} belongs to another user; {remedy}")
            os.fchmod(folder, 0o700)  # an earlier version made it with the umask
        finally:
            os.close(folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be used ({error.strerror}); {remedy}") from None


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(
            f"{path} is a symbolic link and is not written to; remove it, or name the file it leads to"
        )
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(
            f"{path} is no regular file and is not written to; remove it, or choose another name"
        )
    if status.st_nlink > 1:
        raise UsageError(
            f"{path} is a file with {status.st_nlink} names (hard links), and all would change; remove this "
            "name or put a copy in its place"
        )
