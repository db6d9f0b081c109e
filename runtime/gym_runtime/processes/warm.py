"""The inside of a warm process: ``python -m gym_runtime.processes.warm`` calls what it is told to.

Messages are pickles with their length before them, on the descriptors that were standard input and output;
what is called finds a null device there and may print what it likes. It sets its own limits.

It is two processes: the first only keeps watch. It adopts the orphans among its descendants, so that they
are found when it is killed; when the second one ends, however that came about, it kills whom that has left
behind and ends when all are gone. Both die with the worker that started them.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from gym_runtime.processes import tree

LENGTH_BYTES = 8
MEMORY_BYTES = 8 << 30
FILE_BYTES = 256 << 20
CPU_SLACK_S = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    _die_with_parent()
    _limit()
    called = os.fork()
    if called:
        _keep_watch(called)
    _die_with_parent()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _close_standard()
    while head := requests.read(LENGTH_BYTES):
        answer = _answer(requests.read(int.from_bytes(head, "big")))
        _bury()
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        answers.flush()


def _keep_watch(called: int) -> NoReturn:
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _close_standard()  # its end of the pipes closes with the second process
    ended, status = 0, 0
    while ended != called:
        ended, status = os.wait()
    with suppress(ChildProcessError):
        while True:
            for orphan in tree.children(os.getpid()):
                os.kill(orphan, signal.SIGKILL)
            os.wait()
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _close_standard() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1):
        os.dup2(null, place)
    os.close(null)


def _bury() -> None:
    """Children that have ended and that nobody waits for any more: who is left is known to be running."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(request: bytes) -> bytes:
    """Whether it went well, and what came of it: ``(True, result)`` or ``(False, error)``."""
    try:
        path, cpu_s, call = pickle.loads(request)
        sys.path[:] = path
        function, arguments = pickle.loads(call)
        _grant(cpu_s)
        return pickle.dumps((True, function(*arguments)))
    except BaseException as error:  # noqa: BLE001 - it is raised again where the call came from
        return _raised(error)


def _raised(error: BaseException) -> bytes:
    kept: BaseException = error
    if isinstance(error, SystemExit | KeyboardInterrupt):
        kept = RuntimeError(f"{type(error).__name__}: {error}")
    try:
        data = pickle.dumps((False, kept))
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - an error whose constructor takes other arguments does not come back
        data = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return data


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _prctl(option: int, value: int) -> None:
    """Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _limit() -> None:
    import resource

    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # macOS does not know all of them
            resource.setrlimit(kind, (most, most))


def _grant(cpu_s: float | None) -> None:
    """Allow this call that much more processor time: then the kernel ends it, also in native code."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if cpu_s is not None:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        most = int(used + cpu_s) + CPU_SLACK_S
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard < 0 else min(most, hard), hard))


if __name__ == "__main__":
    main()
