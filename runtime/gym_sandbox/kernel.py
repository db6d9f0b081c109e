"""What a warm process asks of the Linux kernel, by way of the C library."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from types import FrameType
from typing import NamedTuple

LARGE_PAGE_BYTES = 2 << 20
HELD_PART = 0.25  # of a large page that is in use already; a large page takes all of its memory
# From linux/prctl.h, linux/sched.h and linux/mman.h, which Python does not wrap.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_GET_TID_ADDRESS = 1, 4, 36, 40
CLONE_VFORK, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x4000, 0x200000, 0x1000000
MADV_COLLAPSE = 25
_library = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None)  # PyDLL keeps the interpreter's lock, which a fork must hold


@cache
def fork_of_one_thread() -> Callable[[], int]:
    """As `os.fork`, without Python's handlers for threads, locks and random numbers.

    They cost a third of a small verification, and a process with one thread does not need them. No request
    runs in this process, so none starts a thread in it.
    """
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return os.fork
    return _python.fork


@cache
def fork_and_wait() -> Callable[[], int]:
    """As `fork_of_one_thread`, and this process stands still until the fork ends or executes a program.

    On other machines than the usual ones it does not stand still.
    """
    fork, machine = fork_of_one_thread(), os.uname().machine
    place = (
        ctypes.c_long()
    )  # where the C library has the number of its thread, which is another one in a fork
    if fork is os.fork or machine not in ("x86_64", "aarch64"):
        return fork
    if _python.prctl(PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0):
        return fork
    number, after = (56, (place.value, 0)) if machine == "x86_64" else (220, (0, place.value))
    flags = CLONE_VFORK | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | signal.SIGCHLD
    clone = ctypes.PyDLL(None).syscall
    clone.argtypes, clone.restype = [ctypes.c_long] * 6, ctypes.c_long
    return partial(clone, number, flags, 0, 0, *after)


def hold_memory_in_large_pages() -> None:
    """Make forks cheaper: for each fork the kernel copies one entry per page, so larger pages are fewer.

    This halves the cost of a fork of 100 MB. It needs Linux 6.1; elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return
    if hasattr(_library, "malloc_trim"):
        _library.malloc_trim(0)
    madvise, mincore = _library.madvise, _library.mincore
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    held = ctypes.create_string_buffer(LARGE_PAGE_BYTES // mmap.PAGESIZE)
    for area in _areas():
        if area.access != "rw-p" or area.file not in ("", "[heap]"):
            continue
        first = area.start + -area.start % LARGE_PAGE_BYTES
        for place in range(first, area.end - LARGE_PAGE_BYTES + 1, LARGE_PAGE_BYTES):
            mincore(place, LARGE_PAGE_BYTES, held)
            if len(held) - held.raw.count(b"\0") > len(held) * HELD_PART:
                madvise(place, LARGE_PAGE_BYTES, MADV_COLLAPSE)


def join_areas_of_libraries() -> None:
    """Make forks cheaper: for each fork the kernel copies every area of memory, of which a library has five.

    They become two, because neighbours with equal rights are one area: what is read can then be executed, or
    written if its neighbour is. Nothing that is written can be executed.
    """
    if sys.platform != "linux":
        return
    mprotect = _library.mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for one, other in pairwise(_areas()):
        if one.end == other.start and one.file == other.file and one.file.startswith("/"):
            if {one.access, other.access} == {"r--p", "r-xp"}:
                area, rights = (one if one.access == "r--p" else other), mmap.PROT_READ | mmap.PROT_EXEC
            elif (one.access, other.access) == ("r--p", "rw-p"):
                area, rights = one, mmap.PROT_READ | mmap.PROT_WRITE
            else:
                continue
            mprotect(area.start, area.end - area.start, rights)


class _Area(NamedTuple):
    start: int
    end: int
    access: str
    file: str


def _areas() -> list[_Area]:
    """This process's memory, in order."""
    areas: list[_Area] = []
    with open("/proc/self/maps") as file:
        for line in file:
            place, access, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(number, 16) for number in place.split("-"))
            areas.append(_Area(start, end, access, "".join(name).strip()))
    return areas


def outlive_sigterm() -> None:
    """Go on at SIGTERM: it is sent to a worker and all that it has started, and the worker decides.

    A fork by `os.fork` ends at it as usual, and so does a program that is executed: code of a model may end
    its own processes in this way.
    """
    signal.signal(signal.SIGTERM, _go_on)
    _unless_forked()


def _go_on(number: int, frame: FrameType | None) -> None:
    pass


# Once, because what is registered for forks cannot be taken back.
@cache
def _unless_forked() -> None:
    masks: list[set[int]] = []

    def before() -> None:
        # Python forgets a signal that reaches a fork before the fork's own code runs.
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is _go_on:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        in_parent()

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def list_folder(folder: int, address: int, size: int) -> int:
    """Have the kernel write what is in an open folder into this memory; return how many bytes that took.

    Returns 0 if it is more than ``size`` bytes, or if the folder cannot be listed.
    """
    # Not by `_library`, see `prctl`.
    written = 0
    while (came := _python.getdents64(folder, ctypes.c_void_p(address + written), size - written)) > 0:
        written += came
    return 0 if came else written


def prctl(option: int, value: int) -> None:
    """Linux only."""
    if sys.platform == "linux":
        # Not by `_library`: the copy of the error number that it keeps would cost a fork 80 more pages.
        _python.prctl(option, value, 0, 0, 0)
