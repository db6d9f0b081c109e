"""The program of an `Interpreter`: runs as a script in the sandbox and imports nothing of this project.

A request has the code, its time limit and how much of its output to keep; the answer follows when the code
is done. Both are JSON after their length, on the descriptors that were standard input and output; the code
gets a null device and files in their place. All state is in one namespace, as in a notebook.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

LENGTH_BYTES = 8
VALUE_CHARACTERS = 10_000


def main(arguments: Sequence[str]) -> None:
    """Answer requests until the input ends.

    Args:
        arguments: one, the names of modules as JSON, by the aliases at whose use they are imported.
    """
    aliases: dict[str, str] = json.loads(arguments[0])
    # Moved away: the code may read, print to or close what it takes for its own streams.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    captured = [_nameless_file("stdout"), _nameless_file("stderr")]
    null = os.open(os.devnull, os.O_RDONLY)
    for place, descriptor in enumerate([null, *captured]):
        os.dup2(descriptor, place)
    signal.signal(signal.SIGALRM, _overrun)
    _outlive_sigterm()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    while head := requests.read(LENGTH_BYTES):
        request = json.loads(requests.read(int.from_bytes(head, "big")))
        number += 1
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - `exit()` closes it
        error, value = _execute(request, f"<cell {number}>", namespace, aliases)
        texts = [_taken(descriptor, request["keep_bytes"]) for descriptor in captured]
        answer = {"stdout": texts[0], "stderr": texts[1], "error": error, "value": value}
        data = json.dumps(answer).encode()
        answers.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        answers.flush()


def _execute(
    request: dict[str, Any], name: str, namespace: dict[str, Any], aliases: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The traceback if the code raised, and the last statement's value if it is an expression."""
    value: str | None = None
    try:
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
        statements, expression, names = _compiled(request["code"], name)
        # `-` binds first: names that the code has defined itself are left alone.
        for alias in names & aliases.keys() - namespace.keys():
            _bind(alias, aliases[alias], namespace)
        exec(statements, namespace)
        if expression is not None:
            result = eval(expression, namespace)
            if result is not None:
                value = repr(result)[:VALUE_CHARACTERS]
        return None, value
    except BaseException as error:  # noqa: BLE001 - any exception of the model's code is its answer
        # First of all, or the alarm could interrupt the description.
        signal.setitimer(signal.ITIMER_REAL, 0)
        return _described(error), None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):  # the model's code may have replaced the streams
                stream.flush()


def _compiled(code: str, name: str) -> tuple[CodeType, CodeType | None, set[str]]:
    tree = ast.parse(code, name)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    last = tree.body[-1] if tree.body else None
    expression = None
    if isinstance(last, ast.Expr):
        tree.body.pop()
        expression = compile(ast.Expression(last.value), name, "eval")
    return compile(tree, name, "exec"), expression, names


def _bind(alias: str, module: str, namespace: dict[str, Any]) -> None:
    try:
        namespace[alias] = __import__(module)
    except ImportError:
        return


def _described(error: BaseException) -> str:
    """The traceback as Python prints it, without this module's frames."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell"):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n")


def _nameless_file(name: str) -> int:
    # O_APPEND: after it was emptied, the next output begins at 0 again.
    descriptor = os.open(f".{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    # Without a name, so that the code can neither remove nor replace it.
    os.unlink(f".{name}")
    return descriptor


def _taken(descriptor: int, keep_bytes: int) -> str:
    """The text of the file, up to ``keep_bytes``; the file is emptied."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, min(size, keep_bytes), 0)
    os.ftruncate(descriptor, 0)
    dropped = f"\n[{size - len(data)} more bytes]" if size > len(data) else ""
    return data.decode(errors="replace") + dropped


def _outlive_sigterm() -> None:
    """As `gym_sandbox.kernel.outlive_sigterm`: the session's memory must not be lost."""
    masks: list[set[int]] = []

    def go_on(number: int, frame: FrameType | None) -> None:
        pass

    def before() -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is go_on:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        in_parent()

    signal.signal(signal.SIGTERM, go_on)
    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _overrun(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the code took longer than its time limit")


if __name__ == "__main__":
    main(sys.argv[1:])
