"""Memory for the data that a fork server passes on: requests, and the names of files left by forks.

Every fork begins with the memory of the process that forks, so what that process has read for one fork, the
next one could find there, also after it was freed. A `MappedBuffer` is apart from that memory, and the kernel
takes it back.
"""

from __future__ import annotations

import mmap
import os


class MappedBuffer:
    """So many bytes of memory.

    Attributes:
        pages: the memory. Whatever is sliced from it is a copy in the process's own memory.
        size: how many bytes were received.
    """

    def __init__(self, capacity: int) -> None:
        # Private: a fork that writes to it changes its own copy only.
        self.pages = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = 0

    def __enter__(self) -> MappedBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.pages.close()

    def fill(self, descriptor: int) -> bool:
        """Receive until it is full; False if the pipe ends before."""
        while self.size < len(self.pages):
            with memoryview(self.pages) as view, view[self.size :] as room:
                # Straight into these pages: `os.read` would put the bytes into other memory first.
                came = os.readv(descriptor, [room])
            if not came:
                return False
            self.size += came
        return True

    def forget(self) -> None:
        """Give the memory of received data back to the kernel."""
        if self.size:
            self.pages.madvise(mmap.MADV_DONTNEED, 0, self.size)
            self.size = 0
