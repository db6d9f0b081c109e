"""Python's objects in one heap. A warm process runs this text before all its imports, so it imports little.

For each fork the kernel copies an entry for each page. Large pages are fewer, but the arenas of a MiB that
Python maps one by one for its objects, between the libraries that are imported, are smaller than these. The C
library's heap can be held in large pages almost wholly, which leaves a fifth of the entries.
"""

from __future__ import annotations

import ctypes
import sys

M_TOP_PAD, M_MMAP_THRESHOLD = -2, -3
LARGE_BYTES = 2 << 20
POOL_BYTES, SMALL_BYTES, STEP_BYTES = 16 << 10, 512, 16
"""Python takes memory for small objects from pools, each for one size, a multiple of the step."""
FILLED_AT_MOST_BYTES = 4 << 20
_RAW = 0  # PYMEM_DOMAIN_RAW: malloc and free of the C library


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx`` of Python's C interface."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free"))


class _ArenaAllocator(ctypes.Structure):
    """``PyObjectArenaAllocator``: its functions take the arena's size as well."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ctx", "alloc", "free"))


def use_one_heap() -> None:
    """Take arenas from the C library's heap from now on, until the process ends by `os._exit`.

    The heap could not free the arenas that exist already. They hold what Python needs to its end, so none of
    them becomes free before.
    """
    library = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(library, "mallopt"):
        return
    for option in (M_TOP_PAD, M_MMAP_THRESHOLD):
        library.mallopt(option, LARGE_BYTES)
    raw = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(raw))
    heap = _ArenaAllocator(raw.ctx, raw.malloc, raw.free)
    ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(heap))


def fill_holes() -> list[object]:
    """Objects that take the free places between others; keep them.

    New objects then lie side by side in new pools. In the holes of the heap each would be on another page,
    and a fork copies each page that it writes to.
    """
    kept: list[object] = []
    # Smaller ones than 48 bytes cannot be made at will.
    for size in range(48, SMALL_BYTES + 1, STEP_BYTES):
        last = run = 0
        for _ in range(FILLED_AT_MOST_BYTES // size):
            filling = bytes(size - sys.getsizeof(b""))
            run = run + 1 if id(filling) == last + size else 0
            last = id(filling)
            kept.append(filling)
            if run > POOL_BYTES // size - 3:  # a whole new pool: no other one had room
                break
    return kept
