"""Runs a program on tests, inside the sandbox: a script that imports nothing of this project.

The first request holds the program, each further one tests. A fork runs one test after the other, until one
does not end well or `SHARED_S` seconds are over; between two it undoes what programs usually change. The
answers are those of the first test, however it ended, and of those after it that ended well. Any other test
is sent again, so that a program fails only by a test that had a new process to itself. What it passes may
share one: a program that keeps something where it is not undone, as in an imported module, finds it in the
next test.

The expected outputs never enter the sandbox: a program that takes over this process, or writes answers
itself, still cannot know the right ones. Messages are JSON with their length before them, as in
`gym_sandbox.repl`.

Source: the names that a program finds without an import, and how deep it may recurse and how long a number
it may write, are those of LiveCodeBench's runner (github.com/LiveCodeBench/LiveCodeBench, MIT).
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType, FrameType, ModuleType
from typing import Any, BinaryIO, NoReturn, cast

LENGTH_BYTES = 8
ERROR_BYTES = 2000
RECURSION_LIMIT = 50_000
INTEGER_DIGITS = 50_000
STARS = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
RESTORED = ("sys", "builtins", "io", "os", "random")
FAILED = 1
SHARED_S = 0.5
ANSWERS_BYTES = 1 << 20
"""A fork ends when its answers are longer."""


def main(arguments: Sequence[str]) -> None:
    """Answer the requests until the input ends; there are no arguments."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    given = json.loads(_next(requests))
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(INTEGER_DIGITS)
    signal.signal(signal.SIGALRM, _overrun)
    try:
        program = compile(given["code"], "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        _answer(answers, [_line({"status": "raised", "error": f"{type(error).__name__}: {error}"})])
        return
    gc.freeze()  # a collection in a fork would write to every object, and so copy every page
    fork = _Fork(program, given["fn_name"], given["limit_s"])
    while request := _next(requests):
        _answer(answers, fork.answers(json.loads(request)))


class _Fork:
    """A fork that runs tests, as the process sees it that makes it."""

    def __init__(self, program: CodeType, fn_name: str | None, limit_s: float) -> None:
        self._program, self._fn_name, self._limit_s = program, fn_name, limit_s

    def answers(self, tests: list[dict[str, Any]]) -> list[bytes]:
        """The lines of the first test's answer, and of those that follow and ended well."""
        files = [_nameless_file(name) for name in ("stdin", "stdout", "stderr", "result", "answers")]
        *streams, result, lines = files
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            for place, descriptor in enumerate(streams):
                os.dup2(descriptor, place)
            # Where no program writes by mistake.
            os.dup2(lines, lines := resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
            os.closerange(3, result)  # including the descriptors of the messages
            os.closerange(result + 1, lines)
            _Tests(self._program, self._fn_name, result, lines).run(tests)
        try:
            status = self._ended(pid, lines)
            size = os.fstat(lines).st_size
            written = os.pread(lines, size, 0) if size <= 16 * ANSWERS_BYTES else b""
            # One that was killed may have left a part of a line.
            return written.splitlines(keepends=True)[: written.count(b"\n")] or [
                self._alone(status, tests[0], files)
            ]
        finally:
            for descriptor in files:
                os.close(descriptor)

    def _alone(self, status: str, test: dict[str, Any], files: list[int]) -> bytes:
        """The answer of a first test that did not write one."""
        _, written, complaints, result, _ = files
        answer = {"status": status, "error": _content(complaints, ERROR_BYTES, from_end=True)}
        source, keep = (written if self._fn_name is None else result), test["keep_bytes"]
        if os.fstat(source).st_size > keep:
            answer["status"] = "overlong"
        elif status == "done":
            answer["output"] = _content(source, keep)
        return _line(answer)

    def _ended(self, pid: int, lines: int) -> str:
        """Wait for the fork, up to the limit: ``done``, ``raised``, ``died`` or ``timeout``."""
        # Twice: the second time only a first test is waited for.
        for limit_s in (min(2 * SHARED_S, self._limit_s), self._limit_s - 2 * SHARED_S):
            if limit_s > 0 and not os.fstat(lines).st_size:
                with suppress(TimeoutError):
                    signal.setitimer(signal.ITIMER_REAL, limit_s)
                    # Its end can be asked for again: the alarm may ring just after this returned.
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                    signal.setitimer(signal.ITIMER_REAL, 0)
        ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not ended:
            os.waitpid(pid, 0)
            return "timeout"
        code = os.waitstatus_to_exitcode(status)
        return {0: "done", FAILED: "raised"}.get(code, "died")


class _Tests:
    """Tests in a fork, which never returns to the loop above."""

    def __init__(self, program: CodeType, fn_name: str | None, result: int, lines: int) -> None:
        self._program, self._fn_name = program, fn_name
        self._result, self._lines = result, lines
        self._began_s = time.monotonic()
        self._modules = [(vars(sys.modules[name]), dict(vars(sys.modules[name]))) for name in RESTORED]
        self._variables = dict(os.environ)

    def run(self, tests: list[dict[str, Any]]) -> NoReturn:
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for test in tests:
            self._stdin(test["stdin"])
            code = self._run(test)
            source, keep = (1 if self._fn_name is None else self._result), test["keep_bytes"]
            if code or os.fstat(source).st_size > keep:
                os._exit(code)
            written = os.write(self._lines, _line({"status": "done", "output": _content(source, keep)}))
            if written > ANSWERS_BYTES or time.monotonic() - self._began_s > SHARED_S or not self._restored():
                break
        os._exit(0)

    def _stdin(self, text: str) -> None:
        for descriptor in (0, 1, 2, self._result):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
        rest = memoryview(text.encode("utf-8", "surrogatepass"))
        while rest:
            rest = rest[os.write(0, rest) :]
        os.lseek(0, 0, os.SEEK_SET)

    def _run(self, test: dict[str, Any]) -> int:
        """Run the program, and print what went wrong; the exit code."""
        module = ModuleType("__main__" if self._fn_name is None else "solution")
        try:
            try:
                sys.modules[module.__name__] = module
                module.__dict__.update(NAMES)
                exec(self._program, module.__dict__)
                if self._fn_name is not None:
                    os.pwrite(self._result, _returned(module, self._fn_name, test["stdin"]), 0)
            except SystemExit:
                pass  # a program may exit with any code: its output counts
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the only way without exiting
            sys.stdout.flush()
            return 0
        except BaseException:  # noqa: BLE001 - an exception of a model's program is its result
            os.write(2, traceback.format_exc(limit=-3, chain=False).encode(errors="replace"))
            return FAILED
        finally:
            module.__dict__.clear()  # its functions refer to it, and would keep all of it

    def _restored(self) -> bool:
        """Whether another test may follow; what programs usually change is as it was."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for names, before in self._modules:
            for name in names.keys() - before.keys():
                del names[name]
            names.update(before)
        if threading.active_count() > 1 or _has_children():
            return False
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if os.environ != self._variables:
            os.environ.clear()
            os.environ.update(self._variables)
        os.chdir("/tmp" if os.environ["HOME"] == "/tmp" else os.environ["HOME"])
        os.closerange(self._result + 1, self._lines)
        sys.setrecursionlimit(RECURSION_LIMIT)
        sys.set_int_max_str_digits(INTEGER_DIGITS)
        sys.settrace(None)
        sys.setprofile(None)
        random.seed()
        gc.enable()
        # As Python makes them when it starts.
        kept = "surrogateescape"
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors=kept, closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors=kept, closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        return True


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _returned(module: ModuleType, fn_name: str, lines: str) -> bytes:
    """The result of the function, or of the method of a class ``Solution``; arguments come one per line."""
    holder = module.Solution() if hasattr(module, "Solution") else module
    answer = getattr(holder, fn_name)(*map(json.loads, lines.split("\n")))
    if isinstance(answer, tuple):
        answer = list(cast("tuple[Any, ...]", answer))
    return json.dumps(_tagged(answer)).encode()


def _tagged(value: Any) -> Any:
    """A value as JSON that keeps the distinctions of Python's equality; ``{"never": …}`` equals nothing."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # numpy's numbers
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, list):
        return [_tagged(element) for element in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return {"tuple": [_tagged(element) for element in cast("tuple[Any, ...]", value)]}
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {"dict": [[_tagged(key), _tagged(element)] for key, element in pairs]}
    return {"never": type(value).__name__}


def _names_at_hand() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for module in STARS:
        exec(f"from {module} import *\nimport {module}", names)
    sys.setrecursionlimit(RECURSION_LIMIT)
    for name in ("__builtins__", "annotations"):
        names.pop(name, None)
    return names


def _nameless_file(name: str) -> int:
    descriptor = os.open(f".{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(f".{name}")
    return descriptor


def _content(descriptor: int, size: int, *, from_end: bool = False) -> str:
    start = max(0, os.fstat(descriptor).st_size - size) if from_end else 0
    return os.pread(descriptor, size, start).decode("utf-8", "replace")


def _next(requests: BinaryIO) -> bytes:
    head = requests.read(LENGTH_BYTES)
    return requests.read(int.from_bytes(head, "big")) if head else b""


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _answer(answers: BinaryIO, lines: list[bytes]) -> None:
    data = b"[" + b",".join(lines) + b"]"
    answers.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    answers.flush()


def _overrun(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


NAMES = _names_at_hand()  # before a template forks

if __name__ == "__main__":
    main(sys.argv[1:])
