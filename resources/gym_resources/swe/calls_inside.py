"""Calls a repository's functions, inside of the sandbox: a script that imports nothing of this project.

Each line of the standard input is a call; the answer is a line with what it returned or raised. Each call
runs in a fork of its own, which cannot write answers to other calls and is killed at its time limit; a call
that reaches it is the last one. What is expected never enters the sandbox.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

ANSWER_BYTES = 1 << 20
LATE = "it took too long"


def serve() -> None:
    # At the end of the path, so that no file of the repository takes the place of a standard module.
    sys.path.append(os.getcwd())
    signal.signal(signal.SIGALRM, _overrun)
    requests = [json.loads(line) for line in sys.stdin]
    for request in requests:
        answer = _answered(request)
        sys.stdout.write(json.dumps({"id": request["id"], **answer}) + "\n")
        sys.stdout.flush()
        if answer["error"] == LATE:
            break  # all others may take as long


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(reading)
        _call(request, writing)
    os.close(writing)
    data = b""
    try:
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
        while len(data) < ANSWER_BYTES and (piece := os.read(reading, 65536)):
            data += piece
        answer = json.loads(data)
        return {"error": str(answer["error"]), "value": answer["value"]}
    except TimeoutError:
        return {"error": LATE, "value": None}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"error": "no answer", "value": None}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(reading)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _call(request: dict[str, Any], writing: int) -> NoReturn:
    null = os.open(os.devnull, os.O_RDWR)
    for place in range(3):
        os.dup2(null, place)
    error, value = "", None
    try:
        module, _, name = request["call"].rpartition(".")
        value = getattr(importlib.import_module(module), name)(*request["arguments"])
    except BaseException as raised:  # noqa: BLE001 - an exception of the repository is its answer
        error = type(raised).__name__
    try:
        data = json.dumps({"error": error, "value": value}).encode()
    except (TypeError, ValueError, RecursionError):
        data = b'{"error": "not JSON", "value": null}'
    while data:
        data = data[os.write(writing, data) :]
    os._exit(0)


def _overrun(number: int, frame: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    serve()
