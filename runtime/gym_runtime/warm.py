"""The inside of a warm process: runs with ``python -m gym_runtime.warm`` and calls what it is told to.

Messages are pickles with their length before them, on the descriptors that were standard input and output;
what is called finds a null device there and may print what it likes. It sets its own limits, adopts its
descendants' orphans so that they are found when it is killed, and dies with the worker that started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from types import FrameType

LENGTH_BYTES = 8
MEMORY_BYTES = 8 << 30
FILE_BYTES = 256 << 20
CPU_SLACK_S = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1):
        os.dup2(null, place)
    _adopt_orphans()
    _limit()
    while head := requests.read(LENGTH_BYTES):
        answer = _answer(requests.read(int.from_bytes(head, "big")))
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        answers.flush()


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


def _adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, and die with the worker; Linux only."""
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _limit() -> None:
    import resource

    signal.signal(signal.SIGXCPU, _out_of_time)
    for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_FSIZE, FILE_BYTES)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, hard))
        except (ValueError, OSError):
            continue  # macOS does not know all of them
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _grant(cpu_s: float | None) -> None:
    """Allow this call that much more processor time; only a worker that has gone lets it come to that."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if cpu_s is not None:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        most = int(used + cpu_s) + CPU_SLACK_S
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard < 0 else min(most, hard), hard))


def _out_of_time(number: int, frame: FrameType | None) -> None:
    os._exit(128 + signal.SIGXCPU)


if __name__ == "__main__":
    main()
