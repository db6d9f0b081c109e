"""The program of a warm process: imports what requests of one kind need, then forks for each request.

    worker ──request──▶ warm process ──fork──▶ the function
           ◀──answer──   (reads neither)  ◀──  a file without a name

The fork decodes the request, calls the function, writes the answer and ends. All processes that it has
started are killed, and the files that it has left are removed; if it left more than files, the warm process
reports that it takes no further requests. A fork has its own memory, cannot write into the warm process's
(which is not dumpable), has none of its pipes, and cannot make the system calls that would
change its limits or priority (`gym_sandbox.seccomp`).

While a fork lives, the warm process stands still. The kernel would copy each page that it writes to, and
break up large pages for good, which would double the cost of a small verification. So the worker watches the
fork, and kills both if it takes too long; the kernel kills a fork that takes much too long.

The warm process passes bytes on without decoding them, in memory that it gives back before the next fork
(`gym_sandbox.passage`). Nor does it read the names of what a fork has started or left. So the memory
from which the next fork starts has nothing of the one before it.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, NoReturn

import msgspec
from gym_runtime.errors import Fault, GymError

from gym_sandbox import frames
from gym_sandbox.heap import fill_holes
from gym_sandbox.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    fork_and_wait,
    hold_memory_in_large_pages,
    join_areas_of_libraries,
    outlive_sigterm,
    prctl,
)
from gym_sandbox.passage import Passage
from gym_sandbox.processes import tree
from gym_sandbox.scratch_folder import ScratchFolder

CPU_SLACK_S = 2
FORKS_PER_COLLAPSE = 500  # this process writes while a fork ends, which breaks up some of its large pages
_filling: list[object] = []
NO_ANSWER = 70  # the exit code of a fork that could not report its error


def main() -> None:
    prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # A worker that a shell started in the background ignores it, and so would this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    outlive_sigterm()
    # Moved away, because code that is imported may print or read.
    requests, answers = os.dup(0), os.dup(1)
    if _hung_up(requests):  # the worker ended before this process asked to end with it
        return
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _close_standard()
    with suppress(OSError):  # it may lead a process group already
        os.setpgid(0, 0)
    with Passage(_next_size(requests) or 1) as first:
        if not _received(first, requests, len(first.pages)):
            return
        start = frames.decode_start(first.pages[:])
    function: Callable[..., Any] | None = None
    try:
        function = _prepared(start)
        ready = frames.encode_answer(frames.CallDone(msgspec.Raw(b"null")))
    except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
        ready = _failed(error)
    _write(answers, _head(0, frames.ANSWERED, function is None, len(ready)) + ready)
    if function is None:
        return
    folders = [ScratchFolder(path) for path in _scratch(start)]
    while size := _next_size(requests):
        with Passage(size) as request:
            if not _received(request, requests, size):
                return
            number, cpu_s = frames.REQUEST.unpack_from(request.pages)
            answer = _file_without_name(folders[0].path)
            how, why = _called(function, request, answer, _cpu_limit(cpu_s), (requests, answers))
        # Looked at when all that the fork has started is over, and writes no more.
        last = not all(folder.clean() for folder in folders)
        if how == frames.ANSWERED:
            sent, size = 0, os.fstat(answer).st_size
            _write(answers, _head(number, how, last, size))
            while sent < size:
                sent += os.sendfile(answers, answer, sent, size - sent)
        else:
            _write(answers, _head(number, how, last, len(why)) + why)
        os.close(answer)
        if number % FORKS_PER_COLLAPSE == 0:
            hold_memory_in_large_pages()


def _prepared(start: frames.Start) -> Callable[..., Any]:
    """Import and prepare everything that forks should inherit; return the function to call."""
    os.environ.update(start.variables)
    if start.prepare:
        frames.find(start.prepare)(*start.arguments)
    function = frames.find(start.function)
    # Made here, so that forks find it in the cache.
    frames.argument_decoder(function)
    # A collection in a fork would write to every object, and so copy every page.
    gc.collect()
    _filling.extend(fill_holes())
    gc.freeze()
    join_areas_of_libraries()
    hold_memory_in_large_pages()
    return function


def _called(
    function: Callable[..., Any],
    request: Passage,
    answer: int,
    cpu_limit: tuple[int, int],
    not_for_it: tuple[int, int],
) -> tuple[int, bytes]:
    """Call the function in a fork, whose answer goes into an open file; how the call ended, and why.

    The fork is over, and so are all processes that it has started.
    """
    parent, fork_now = os.getpid(), fork_and_wait()
    pid = fork_now()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
        for descriptor in not_for_it:
            os.close(descriptor)
        if fork_now is os.fork:
            outlive_sigterm()
        _work(function, request, answer, cpu_limit)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end_orphans()
    size = os.fstat(answer).st_size
    if size > frames.ANSWER_BYTES:
        return frames.DIED, f"an answer of {size} bytes, more than {frames.ANSWER_BYTES}".encode()
    if code == 0 and size:
        return frames.ANSWERED, b""
    if code == -signal.SIGXCPU:
        return frames.OVERRAN, b""
    return frames.DIED, (f"signal {-code}" if code < 0 else f"exit code {code}").encode()


def _work(
    function: Callable[..., Any], request: Passage, answer: int, cpu_limit: tuple[int, int]
) -> NoReturn:
    """Runs in the fork."""
    try:
        prctl(PR_SET_DUMPABLE, 1)
        resource.setrlimit(resource.RLIMIT_CPU, cpu_limit)
        try:
            arguments = frames.argument_decoder(function)(memoryview(request.pages)[frames.REQUEST.size :])
            result = frames.encode_result(function(*arguments))
            data = frames.encode_answer(frames.CallDone(msgspec.Raw(result)))
        except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
            data = _failed(error)
        _write(answer, data)
        os._exit(0)
    finally:
        os._exit(NO_ANSWER)


def _end_orphans() -> None:
    """Kill what a fork has left running, and wait for its end.

    This process is a subreaper, so the fork's orphans have become its children, in any session.
    """
    while True:
        try:
            # Any child: the fork's orphans became this process's.
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            for orphan in tree.children(os.getpid()):
                tree.kill(orphan)
            os.waitpid(-1, 0)


def _file_without_name(folder: str) -> int:
    try:
        # Not by `tempfile`: after a fork, each page that its code touches in this process is a page fault.
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # not on every file system
        with TemporaryFile(buffering=0, dir=folder) as file:
            return os.dup(file.fileno())


def _scratch(start: frames.Start) -> list[str]:
    """The folders that forks can write to."""
    return [os.environ["HOME"], *(["/dev/shm"] if start.isolated else [])]


def _failed(error: BaseException) -> bytes:
    fault = Fault(kind="resource", name="ResourceError", message=f"{type(error).__name__}: {error}")
    if isinstance(error, GymError):
        fault = error.fault()
    # A message may hold lone surrogates, which JSON cannot.
    readable = fault.message[: frames.FAULT_CHARACTERS].encode(errors="replace").decode()
    return frames.encode_answer(frames.CallFailed(msgspec.structs.replace(fault, message=readable)))


def _head(number: int, how: int, last: bool, size: int) -> bytes:
    return frames.LENGTH.pack(frames.ANSWER.size + size) + frames.ANSWER.pack(number, how, last)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _next_size(requests: int) -> int:
    """The length of the next frame; 0 at the end."""
    head = b""
    while len(head) < frames.LENGTH.size:
        piece = os.read(requests, frames.LENGTH.size - len(head))
        if not piece:
            return 0
        head += piece
    return frames.LENGTH.unpack(head)[0]


def _received(passage: Passage, descriptor: int, size: int) -> bool:
    """Receive so many bytes; False if the pipe ends before."""
    while passage.size < size:
        if not passage.receive(descriptor, size):
            return False
    return True


def _hung_up(requests: int) -> bool:
    look = select.poll()
    look.register(requests, 0)
    return any(event & select.POLLHUP for _, event in look.poll(0))


def _close_standard() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1):
        os.dup2(null, place)
    os.close(null)


def _cpu_limit(cpu_s: float) -> tuple[int, int]:
    """At which the kernel kills a fork, a little above its limit, in case the worker does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if math.isfinite(cpu_s):
        most = math.ceil(cpu_s) + CPU_SLACK_S
        soft = most if hard < 0 else min(most, hard)
    return soft, hard
