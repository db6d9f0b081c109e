"""Linux calls of a fork server that Python does not wrap, made through the C library."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from functools import cache
from types import FrameType

# From linux/prctl.h.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_library = ctypes.PyDLL(None)  # it keeps the interpreter's lock, which a fork must hold


def fork() -> int:
    """As `os.fork`; of one thread without Python's handlers for threads, locks and random numbers.

    They touch so many pages, which the kernel then copies, that a verification would cost 4 ms instead of 3.
    """
    return _library.fork() if _has_one_thread() else os.fork()


# Once: no request runs in the process that forks, so none starts a thread in it.
@cache
def _has_one_thread() -> bool:
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1


def prctl(option: int, value: int) -> None:
    """Linux only."""
    if sys.platform == "linux":
        _library.prctl(option, value, 0, 0, 0)


def list_folder(folder: int, address: int, size: int) -> int:
    """Have the kernel write what is in an open folder into this memory; return how many bytes that took.

    Returns 0 if it is more than ``size`` bytes, or if the folder cannot be listed.
    """
    written = 0
    while (came := _library.getdents64(folder, ctypes.c_void_p(address + written), size - written)) > 0:
        written += came
    return 0 if came else written


def outlive_sigterm() -> None:
    """Go on at SIGTERM: it is sent to a worker and all that it has started, and the worker decides.

    A fork ends at it as usual, and so does a program that is executed: code of a model may end its own
    processes in this way.
    """
    signal.signal(signal.SIGTERM, _go_on)
    _unless_forked()


def _go_on(number: int, frame: FrameType | None) -> None:
    pass


# Once, because a registration for forks cannot be undone.
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
