"""A fork server: imports what requests of one kind need, then forks for each request.

    worker ──request──▶ fork server ──fork──▶ the function
           ◀──answer──  (reads neither) ◀──  a file without a name

The fork decodes the request, calls the function, writes the answer and ends. All processes that it has
started are killed, and the files that it has left are removed; if it left more than files, the fork server
reports that it takes no further requests. A fork has its own memory, cannot write into the fork server's
(which is not dumpable), has none of its pipes, and cannot make the system calls that would
change its limits or priority (`gym_sandbox.seccomp`).

While a fork lives, the fork server waits for its end. So the worker watches the fork, and kills both if it
takes too long; the kernel kills a fork that takes much too long.

Where requests may share a fork (`gym_sandbox.frames.Start`), it reads and answers up to `SHARED_AT_MOST` of
them by itself, and the fork server waits for its end.

The fork server passes bytes on without decoding them, in memory that it gives back before the next fork
(`gym_sandbox.mapped_buffer`). Nor does it read the names of what a fork has started or left. So the memory
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

from gym_sandbox import frames
from gym_sandbox.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    fork,
    outlive_sigterm,
    prctl,
)
from gym_sandbox.mapped_buffer import MappedBuffer
from gym_sandbox.processes import tree
from gym_sandbox.scratch_folder import ScratchFolder

CPU_SLACK_S = 2
SHARED_AT_MOST = 256
NO_ANSWER = 70  # the exit code of a fork that could not report its error
NO_REQUESTS = 71  # and of one that is shared, and found that the worker has closed the pipe


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
    with MappedBuffer(_next_size(requests) or 1) as first:
        if not first.fill(requests):
            return
        start = frames.decode_start(first.pages[:])
    explain, function, shared = frames.explained, None, False
    try:
        explain = frames.find(start.explain)
        function, shared = _prepared(start)
        ready = frames.encode_answer(frames.CallDone(msgspec.Raw(frames.encode_result(shared))))
    except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
        ready = _failed(explain, error)
    _write(answers, _head(0, frames.ANSWERED, function is None, len(ready)) + ready)
    if function is None:
        return
    folders = [ScratchFolder(path) for path in _scratch(start)]
    if shared:
        _share(function, explain, folders, (requests, answers))
        return
    while size := _next_size(requests):
        # Without a name, where the file system can: so no other process finds it.
        with MappedBuffer(size) as request, TemporaryFile(buffering=0, dir=folders[0].path) as file:
            if not request.fill(requests):
                return
            number, cpu_s = frames.REQUEST.unpack_from(request.pages)
            answer = file.fileno()
            how, why = _called(function, explain, request, answer, _cpu_limit(cpu_s), (requests, answers))
            # Looked at when all that the fork has started is over, and writes no more.
            last = not all(folder.clean() for folder in folders)
            if how == frames.ANSWERED:
                sent, size = 0, os.fstat(answer).st_size
                _write(answers, _head(number, how, last, size))
                while sent < size:
                    sent += os.sendfile(answers, answer, sent, size - sent)
            else:
                _write(answers, _head(number, how, last, len(why)) + why)


def _prepared(start: frames.Start) -> tuple[Callable[..., Any], bool]:
    """Import and prepare everything that forks should inherit.

    Returns:
        The function to call, and whether calls may share a fork.
    """
    for setting in frames.LARGE_PAGES:  # not for programs that are started here
        os.environ.pop(setting.partition("=")[0], None)
    os.environ.update(start.variables)
    shared = bool(start.prepare) and frames.find(start.prepare)(*start.arguments) is True
    function = frames.find(start.function)
    # Made here, so that forks find it in the cache.
    frames.argument_decoder(function)
    # A collection in a fork would write to every object, and so copy every page.
    gc.collect()
    gc.freeze()
    return function, shared


def _called(
    function: Callable[..., Any],
    explain: frames.Explain,
    request: MappedBuffer,
    answer: int,
    cpu_limit: tuple[int, int],
    not_for_it: tuple[int, int],
) -> tuple[int, bytes]:
    """Call the function in a fork, whose answer goes into an open file; how the call ended, and why.

    The fork is over, and so are all processes that it has started.
    """
    pid = _fork()
    if pid == 0:
        for descriptor in not_for_it:
            os.close(descriptor)
        _work(function, explain, request, answer, cpu_limit)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end_orphans()
    size = os.fstat(answer).st_size
    if size > frames.ANSWER_BYTES:
        return frames.DIED, f"an answer of {size} bytes, more than {frames.ANSWER_BYTES}".encode()
    if code == 0 and size:
        return frames.ANSWERED, b""
    return _died(code)


def _died(code: int) -> tuple[int, bytes]:
    if -code in (signal.SIGXCPU, signal.SIGPROF):
        return frames.OVERRAN, b""
    return frames.DIED, (f"signal {-code}" if code < 0 else f"exit code {code}").encode()


def _fork() -> int:
    """Fork a process that ends with this one; 0 in it."""
    parent = os.getpid()
    pid = fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
        outlive_sigterm()
    return pid


def _share(
    function: Callable[..., Any],
    explain: frames.Explain,
    folders: list[ScratchFolder],
    pipes: tuple[int, int],
) -> None:
    """Let one fork after the other serve requests, until they end."""
    last = False
    while not last:
        pid = _fork()
        if pid == 0:
            _serve(function, explain, pipes)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _end_orphans()
        if code == NO_REQUESTS:
            return
        # A fork that left more than files leaves a process that takes no further requests.
        last = not all(folder.clean() for folder in folders)
        if code:
            how, why = _died(code)
            _write(pipes[1], _head(0, how, last, len(why)) + why)


def _serve(function: Callable[..., Any], explain: frames.Explain, pipes: tuple[int, int]) -> NoReturn:
    """Runs in a fork that is shared."""
    try:
        requests, answers = pipes
        for _ in range(SHARED_AT_MOST):
            if not (size := _next_size(requests)):
                os._exit(NO_REQUESTS)
            with MappedBuffer(size) as request:
                if not request.fill(requests):
                    os._exit(NO_REQUESTS)
                number, cpu_s = frames.REQUEST.unpack_from(request.pages)
                # It ends this process, which runs no code that would stop it.
                signal.setitimer(signal.ITIMER_PROF, cpu_s if math.isfinite(cpu_s) else 0)
                data = _result(function, explain, request)
                signal.setitimer(signal.ITIMER_PROF, 0)
            size = len(data)
            if size > frames.ANSWER_BYTES:
                data = f"an answer of {size} bytes, more than {frames.ANSWER_BYTES}".encode()
            how = frames.DIED if size > frames.ANSWER_BYTES else frames.ANSWERED
            _write(answers, _head(number, how, False, len(data)) + data)
        os._exit(0)
    finally:
        os._exit(NO_ANSWER)


def _work(
    function: Callable[..., Any],
    explain: frames.Explain,
    request: MappedBuffer,
    answer: int,
    cpu_limit: tuple[int, int],
) -> NoReturn:
    """Runs in the fork."""
    try:
        prctl(PR_SET_DUMPABLE, 1)
        resource.setrlimit(resource.RLIMIT_CPU, cpu_limit)
        _write(answer, _result(function, explain, request))
        os._exit(0)
    finally:
        os._exit(NO_ANSWER)


def _result(function: Callable[..., Any], explain: frames.Explain, request: MappedBuffer) -> bytes:
    try:
        with memoryview(request.pages) as pages, pages[frames.REQUEST.size :] as data:
            arguments = frames.argument_decoder(function)(data)
        result = frames.encode_result(function(*arguments))
        return frames.encode_answer(frames.CallDone(msgspec.Raw(result)))
    except BaseException as error:  # noqa: BLE001 - the error goes to the worker, which raises it
        return _failed(explain, error)


def _end_orphans() -> None:
    """Kill the processes that a fork has left, and wait for their end.

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


def _scratch(start: frames.Start) -> list[str]:
    """The folders that forks can write to."""
    return [os.environ["HOME"], *(["/dev/shm"] if start.isolated else [])]


def _failed(explain: frames.Explain, error: BaseException) -> bytes:
    failed = explain(error)
    # A message may hold lone surrogates, which JSON cannot.
    readable = failed.message[: frames.MESSAGE_CHARACTERS].encode(errors="replace").decode()
    return frames.encode_answer(msgspec.structs.replace(failed, message=readable))


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
