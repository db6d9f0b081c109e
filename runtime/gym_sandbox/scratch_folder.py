"""A folder that the forks of a fork server can write to, which has to be as it was before the next fork.

The names in it are chosen by forks, so the fork server keeps none of them: it reads the listing in a
`MappedBuffer`, and lets another fork read the names and remove what is new.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from gym_sandbox.kernel import fork, list_folder
from gym_sandbox.mapped_buffer import MappedBuffer

LISTING_BYTES = 1 << 15
"""Of a longer listing nothing is known, so the folder is looked through."""


class ScratchFolder:
    """A folder; its present content stays."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names = set(os.listdir(path))
        self._listing = MappedBuffer(LISTING_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._listing.pages))
        self._usual = b""
        self._remember()

    def clean(self) -> bool:
        """Remove the files that a fork has left; False if it has left something else, such as folders."""
        if self._is_usual():
            return True
        # In a fork, whose memory ends with it; this process keeps no names.
        pid = fork()
        if pid == 0:
            self._remove()
        if os.waitpid(pid, 0)[1]:
            return False
        self._remember()  # some file systems give the entries new numbers
        return True

    def _is_usual(self) -> bool:
        self._list()
        size = self._listing.size
        same = 0 < size == len(self._usual) and self._listing.pages.find(self._usual, 0, size) == 0
        self._listing.forget()
        return same

    def _remember(self) -> None:
        self._list()
        self._usual = self._listing.pages[: self._listing.size]
        self._listing.forget()

    def _list(self) -> None:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._listing.size = list_folder(folder, self._address, LISTING_BYTES)
        finally:
            os.close(folder)

    def _remove(self) -> None:
        """Runs in a fork."""
        try:
            for name in set(os.listdir(self.path)) - self._names:
                # A folder cannot be unlinked; the check below then fails.
                with suppress(OSError):
                    os.unlink(os.path.join(self.path, name))
            os._exit(0 if set(os.listdir(self.path)) <= self._names else 1)
        finally:
            os._exit(1)
