"""Runs a program test by test, inside the sandbox: a script that imports nothing of this project.

The first request holds the program, each further one a test. Each test runs in its own fork, so that no test
sees the effects of another, and is killed at its time limit. The expected outputs never enter the sandbox: a
program that takes over this process still cannot know the right answers. Messages are JSON with their length
before them, as in `gym_sandbox.repl`.

Source: the names that a program finds without an import, and how deep it may recurse and how long a number
it may write, are those of LiveCodeBench's runner (github.com/LiveCodeBench/LiveCodeBench, MIT).
"""

from __future__ import annotations

import json
import os
import signal
import sys
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
FAILED = 1


def serve() -> None:
    """Answer the requests until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    given = _next(requests)
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.set_int_max_str_digits(INTEGER_DIGITS)
    signal.signal(signal.SIGALRM, _overrun)
    fn_name: str | None = given["fn_name"]
    try:
        program = compile(given["code"], "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        _answer(answers, {"status": "raised", "error": f"{type(error).__name__}: {error}"})
        return
    names = _names_at_hand()
    while request := _next(requests):
        _answer(answers, _test(program, names, fn_name, request))


def _test(
    program: CodeType, names: dict[str, Any], fn_name: str | None, request: dict[str, Any]
) -> dict[str, Any]:
    read = _nameless_file("stdin", request["stdin"].encode("utf-8", "surrogatepass"))
    written, complaints, result = (_nameless_file(name, b"") for name in ("stdout", "stderr", "result"))
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        for place, descriptor in enumerate((read, written, complaints)):
            os.dup2(descriptor, place)
        os.closerange(3, result)  # including the descriptors of the messages
        _be_the_program(program, names, fn_name, request, result)
    try:
        status = _ended(pid, request["limit_s"])
        answer = {"status": status, "error": _content(complaints, ERROR_BYTES, from_end=True)}
        source, keep = (written if fn_name is None else result), request["keep_bytes"]
        if os.fstat(source).st_size > keep:
            answer["status"] = "overlong"
        elif status == "done":
            answer["output"] = _content(source, keep)
        return answer
    finally:
        for descriptor in (read, written, complaints, result):
            os.close(descriptor)


def _ended(pid: int, limit_s: float) -> str:
    """Wait for the fork, up to the limit: ``done``, ``raised``, ``died`` or ``timeout``."""
    status: int | None = None
    with suppress(TimeoutError):
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        status = os.waitpid(pid, 0)[1]
        signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        os.waitpid(pid, 0)
        return "timeout"
    code = os.waitstatus_to_exitcode(status)
    return {0: "done", FAILED: "raised"}.get(code, "died")


def _be_the_program(
    program: CodeType, names: dict[str, Any], fn_name: str | None, request: dict[str, Any], result: int
) -> NoReturn:
    """In the fork: run, print what went wrong, end without ever returning to the loop above."""
    import atexit
    import threading

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    code = 0
    try:
        try:
            module = ModuleType("__main__" if fn_name is None else "solution")
            sys.modules[module.__name__] = module
            module.__dict__.update(names)
            exec(program, module.__dict__)
            if fn_name is not None:
                os.pwrite(result, _returned(module, fn_name, request["stdin"]), 0)
        except SystemExit:
            pass  # a program may exit with any code: its output counts
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the only way without exiting
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - an exception of a model's program is its result
        code = FAILED
        import traceback

        os.write(2, traceback.format_exc(limit=-3, chain=False).encode(errors="replace"))
    os._exit(code)


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


def _nameless_file(name: str, content: bytes) -> int:
    descriptor = os.open(f".{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(f".{name}")
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _content(descriptor: int, size: int, *, from_end: bool = False) -> str:
    start = max(0, os.fstat(descriptor).st_size - size) if from_end else 0
    return os.pread(descriptor, size, start).decode("utf-8", "replace")


def _next(requests: BinaryIO) -> dict[str, Any]:
    head = requests.read(LENGTH_BYTES)
    return json.loads(requests.read(int.from_bytes(head, "big"))) if head else {}


def _answer(answers: BinaryIO, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    answers.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    answers.flush()


def _overrun(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    serve()
