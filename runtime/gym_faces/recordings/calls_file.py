"""A file of model calls, one `CallEntry` a line, that several processes may append to."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from gym_runtime.errors import UsageError
from gym_runtime.files.appender import Appender, repair_tail
from gym_runtime.own_files import open_own

from gym_faces.recordings.entry import CallEntry, encode_entry


class CallsFile:
    """A file whose lines are handed to the operating system by `append`, so a crash leaves whole lines.

    After a crash of the machine the last line may be partial; the first process that opens the file removes
    it.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        with ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot create {path.parent}: {error.strerror}") from None
            self._appender = Appender(path)
            stack.callback(self._appender.close)
            if not path.is_file():
                self._stack = stack.pop_all()
                return  # a pipe or a device has no last line, and no other writer to agree with
            lock = open_own(path, os.O_RDONLY)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # another process has it open, and has repaired it
            else:
                repair_tail(path)
            fcntl.flock(lock, fcntl.LOCK_SH)
            self._stack = stack.pop_all()

    def append(self, entry: CallEntry) -> None:
        """
        Raises:
            UsageError: the disk is full or broken.
        """
        self._appender.append(encode_entry(entry))
        self._appender.flush()

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        self._stack.close()
