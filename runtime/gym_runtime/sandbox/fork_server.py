"""The program of a warm process: imports what requests of one kind need, then forks for each request.

    worker ──request──▶ warm process ──fork──▶ the function
           ◀──answer──   (reads neither)  ◀──  a pipe of its own

The fork decodes the request, calls the function and writes the answer. Then it is killed with all processes
that it has started, and the files that it has left are removed; if it left more than files, the warm process
reports that it takes no further requests. The warm process passes bytes on without decoding them, so that no
text of a model enters the memory from which the next fork starts. A fork has its own memory, cannot write
into the warm process's (which is not dumpable), has none of its pipes, and cannot make the system calls that
would change its limits or priority (`gym_runtime.sandbox.seccomp`).
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, NoReturn

import msgspec

from gym_runtime.errors import Fault, GymError
from gym_runtime.processes import tree
from gym_runtime.sandbox import frames

WATCH_S = 0.05
CPU_SLACK_S = 2
NO_ANSWER = 70  # the exit code of a fork that could not report its error
CHUNK_BYTES = 1 << 20
LARGE_PAGE_BYTES = 2 << 20
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
MADV_COLLAPSE = 25
_library = ctypes.CDLL(None)
_python = ctypes.PyDLL(None)  # PyDLL keeps the interpreter's lock, which a fork must hold
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # A worker that a shell started in the background ignores it, and so would this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    if _hung_up(requests):  # the worker ended before this process asked to end with it
        return
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _close_standard()
    with suppress(OSError):  # it may lead a process group already
        os.setpgid(0, 0)
    start = frames.decode_start(_frame(requests))
    function: Callable[..., Any] | None = None
    try:
        function = _prepared(start)
        ready = frames.encode_answer(frames.CallDone(msgspec.Raw(b"null")))
    except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
        ready = _failed(error)
    _tell(answers, 0, frames.ANSWERED, function is None, ready)
    if function is None:
        return
    scratch = {folder: set(os.listdir(folder)) for folder in _scratch(start)}
    while frame := _frame(requests):
        number, cpu_s = frames.REQUEST.unpack_from(frame)
        how, data = _forked(function, frame, cpu_s, (requests.fileno(), answers.fileno()))
        last = not all(_clean(folder, before) for folder, before in scratch.items())
        _tell(answers, number, how, last, data)


def _prepared(start: frames.Start) -> Callable[..., Any]:
    """Import and prepare everything that forks should inherit; return the function to call."""
    os.environ.update(start.variables)
    if start.prepare:
        frames.find(start.prepare)(*start.arguments)
    function = frames.find(start.function)
    frames.argument_decoder(function)
    gc.collect()
    gc.freeze()
    _hold_memory_in_large_pages()
    return function


def _forked(
    function: Callable[..., Any], frame: bytes, cpu_s: float, not_for_it: tuple[int, int]
) -> tuple[int, bytes]:
    """Call the function in a fork; return how it ended and its answer, when all its processes are gone.

    Everything is made before the fork. While the fork lives, the kernel copies each page that this process
    writes to, and breaks up large pages for good.
    """
    parent, fork_now = os.getpid(), _fork_of_one_thread()
    answer, to_answer = os.pipe()
    fork = _Fork(answer, cpu_s)
    pid = fork_now()
    if pid == 0:
        _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
        for descriptor in (*not_for_it, answer):
            os.close(descriptor)
        _call(function, frame, cpu_s, to_answer)
    os.close(to_answer)
    try:
        return fork.until_answered(pid)
    finally:
        os.close(answer)
        fork.end()


@cache
def _fork_of_one_thread() -> Callable[[], int]:
    """As `os.fork`, without Python's handlers for threads, locks and random numbers.

    They cost a third of a small verification, and a process with one thread does not need them. No request
    runs in this process, so none starts a thread in it.
    """
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return os.fork
    return _python.fork


def _call(function: Callable[..., Any], frame: bytes, cpu_s: float, to_answer: int) -> NoReturn:
    """Runs in the fork."""
    try:
        _prctl(PR_SET_DUMPABLE, 1)
        _grant(cpu_s)
        try:
            arguments = frames.argument_decoder(function)(frame[frames.REQUEST.size :])
            result = frames.encode_result(function(*arguments))
            data = frames.encode_answer(frames.CallDone(msgspec.Raw(result)))
        except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
            data = _failed(error)
        rest = memoryview(frames.LENGTH.pack(len(data)) + data)
        while rest:
            rest = rest[os.write(to_answer, rest) :]
        os._exit(0)
    finally:
        os._exit(NO_ANSWER)


class _Fork:
    """A fork that calls the function, within its limit of processor time."""

    def __init__(self, answer: int, cpu_s: float) -> None:
        self._pid = 0
        self._answer = answer
        self._cpu_s = cpu_s
        self._status: int | None = None
        self._readable = select.poll()
        self._readable.register(answer, select.POLLIN)

    def until_answered(self, pid: int) -> tuple[int, bytes]:
        self._pid = pid
        readable, got = self._readable.poll(1000 * WATCH_S), bytearray()
        look_s = 0.0 if not readable else time.monotonic() + WATCH_S
        while True:
            if readable:
                piece = os.read(self._answer, CHUNK_BYTES)
                got += piece
                size = frames.LENGTH.unpack_from(got)[0] if len(got) >= frames.LENGTH.size else 0
                if size > frames.ANSWER_BYTES:
                    return frames.DIED, f"an answer of {size} bytes, more than {frames.ANSWER_BYTES}".encode()
                if size and len(got) >= frames.LENGTH.size + size:
                    return frames.ANSWERED, bytes(got[frames.LENGTH.size :][:size])
                if not piece:
                    return self._death()
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + WATCH_S
                if _cpu_s() > self._cpu_s:
                    return frames.OVERRAN, b""
                if self._ended():  # its children may keep the pipe open
                    return self._death()
            readable = self._readable.poll(1000 * WATCH_S)

    def end(self) -> None:
        """Kill it with all processes that it has started, and wait for their ends.

        This process is a subreaper, so the fork's orphans have become its children, in any session.
        """
        if not self._ended():
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        while True:
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not ended:
                for orphan in tree.children(os.getpid()):
                    tree.kill(orphan)
                os.waitpid(-1, 0)

    def _ended(self) -> bool:
        if self._status is None:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if ended else None
        return self._status is not None

    def _death(self) -> tuple[int, bytes]:
        end_s = time.monotonic() + WATCH_S
        while not self._ended():  # its pipe closes a moment before waitpid reports its end
            if time.monotonic() > end_s:
                return frames.DIED, b"it closed its pipe without an answer"
            time.sleep(0.001)
        code = os.waitstatus_to_exitcode(self._status or 0)
        if code == -signal.SIGXCPU:
            return frames.OVERRAN, b""
        return frames.DIED, (f"signal {-code}" if code < 0 else f"exit code {code}").encode()


def _cpu_s() -> float:
    """The processor time that the descendants of this process have used, in seconds."""
    ticks = 0
    for pid in tree.members(os.getpid())[1:]:
        with suppress(OSError, ValueError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and its ended children's
    return ticks / _TICKS_PER_S


def _clean(folder: str, before: set[str]) -> bool:
    """Remove the files that a fork has left; False if it has left something else, such as folders."""
    left = set(os.listdir(folder)) - before
    if not left:
        return True
    for name in left:
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))
    return set(os.listdir(folder)) <= before


def _scratch(start: frames.Start) -> list[str]:
    """The folders that forks can write to."""
    return [os.environ["HOME"], *(["/dev/shm"] if start.isolated else [])]


def _failed(error: BaseException) -> bytes:
    fault = Fault(kind="resource", name="ResourceError", message=f"{type(error).__name__}: {error}")
    if isinstance(error, GymError):
        fault = error.fault()
    readable = fault.message[: frames.FAULT_CHARACTERS].encode(errors="replace").decode()
    return frames.encode_answer(frames.CallFailed(msgspec.structs.replace(fault, message=readable)))


def _tell(answers: BinaryIO, number: int, how: int, last: bool, data: bytes) -> None:
    answers.write(
        frames.LENGTH.pack(frames.ANSWER.size + len(data)) + frames.ANSWER.pack(number, how, last) + data
    )
    answers.flush()


def _frame(requests: BinaryIO) -> bytes:
    """The next frame; empty at the end."""
    head = requests.read(frames.LENGTH.size)
    return requests.read(frames.LENGTH.unpack(head)[0]) if len(head) == frames.LENGTH.size else b""


def _hung_up(requests: BinaryIO) -> bool:
    look = select.poll()
    look.register(requests.fileno(), 0)
    return any(event & select.POLLHUP for _, event in look.poll(0))


def _close_standard() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1):
        os.dup2(null, place)
    os.close(null)


def _grant(cpu_s: float) -> None:
    """Have the kernel kill this fork a little above its limit, in case the warm process does not."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if math.isfinite(cpu_s):
        most = math.ceil(cpu_s) + CPU_SLACK_S
        resource.setrlimit(resource.RLIMIT_CPU, (most if hard < 0 else min(most, hard), hard))


def _hold_memory_in_large_pages() -> None:
    """Make forks cheaper: for each fork the kernel copies one entry per page, so larger pages are fewer.

    This halves the cost of a fork of 100 MB. It needs Linux 6.1; elsewhere nothing changes.
    """
    if sys.platform != "linux":
        return
    madvise = _library.madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as file:
        for line in file:
            place, access, _, _, _, *name = line.split()
            first, end = (int(number, 16) for number in place.split("-"))
            first += -first % LARGE_PAGE_BYTES
            end -= end % LARGE_PAGE_BYTES
            if access == "rw-p" and name in ([], ["[heap]"]) and end > first:
                madvise(first, end - first, MADV_COLLAPSE)


def _prctl(option: int, value: int) -> None:
    """Linux only."""
    if sys.platform == "linux":
        _library.prctl(option, value, 0, 0, 0)
