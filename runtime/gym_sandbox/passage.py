"""Memory for what passes through a warm process: requests, and what forks name files.

Every fork begins with the memory of the process that forks, so what that process has read for one fork, the
next one could find there, also after it was freed. A `Passage` is memory of its own, which the kernel takes
back.
"""

from __future__ import annotations

import mmap
import os
from types import TracebackType


class Passage:
    """So many bytes of memory.

    Attributes:
        pages: the memory. Whatever is sliced from it is a copy in the process's own memory.
        size: how many bytes were received.
    """

    def __init__(self, capacity: int) -> None:
        # Private: a fork that writes to it changes its own copy only.
        self.pages = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = 0

    def __enter__(self) -> Passage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pages.close()

    def receive(self, descriptor: int, up_to: int) -> int:
        """Read once, until ``up_to`` bytes were received at most; return how many came, 0 at the end."""
        with memoryview(self.pages) as view, view[self.size : up_to] as room:
            # Straight into these pages: `os.read` would put the bytes into the process's own memory first.
            came = os.readv(descriptor, [room])
        self.size += came
        return came

    def forget(self) -> None:
        """Give what was received back to the kernel."""
        if self.size:
            self.pages.madvise(mmap.MADV_DONTNEED, 0, self.size)
            self.size = 0
