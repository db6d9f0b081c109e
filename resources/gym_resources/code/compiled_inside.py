"""Compiles a C++ program and runs it on inputs, inside the sandbox: a script that imports nothing of this
project.

It reads ``{"sources", "inputs", "limit_s", "memory_bytes", "keep_bytes"}`` from its standard input, and
writes ``{"problem", "outputs"}``: why it does not compile, or for each input, up to the first that did not
end well, ``{"status", "output"}``. Expected outputs never enter the sandbox.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COMPILE_S = 60
FLAGS = ("-O2", "-std=c++17", "-pipe", "-w", "-fmax-errors=3")
ERROR_BYTES = 2000
STACK_BYTES = 256 << 20


def main() -> None:
    """Answer the one request."""
    given = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "wb")
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chdir(folder)
    for name, text in given["sources"].items():
        Path(name).write_text(text, "utf-8")
    sources = [name for name in given["sources"] if name.endswith((".cpp", ".cc"))]
    answer: dict[str, Any] = {"problem": _compiled(sources), "outputs": []}
    while not answer["problem"] and len(answer["outputs"]) < len(given["inputs"]):
        done = _run(given, len(answer["outputs"]))
        answer["outputs"].append(done)
        if done["status"] != "done":
            break
    answers.write(json.dumps(answer).encode())
    answers.close()
    os._exit(0)


def _compiled(sources: list[str]) -> str:
    """Why the sources do not compile; empty if they do."""
    try:
        made = subprocess.run(
            ["g++", *FLAGS, *sources, "-I.", "-o", "program"],
            capture_output=True,
            timeout=COMPILE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {COMPILE_S} s to compile"
    return (
        made.stderr.decode(errors="replace")[:ERROR_BYTES] or "it does not compile" if made.returncode else ""
    )


def _run(given: dict[str, Any], number: int) -> dict[str, str]:
    """How a run on one input ended, with its output if it ended well."""
    keep, memory, limit_s = given["keep_bytes"][number], given["memory_bytes"], given["limit_s"]

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (min(STACK_BYTES, memory), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 1))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as taken, tempfile.TemporaryFile() as written:
        taken.write(given["inputs"][number].encode())
        taken.seek(0)
        try:
            ended = subprocess.run(
                ["./program"],
                stdin=taken,
                stdout=written,
                stderr=subprocess.DEVNULL,
                timeout=3 * limit_s + 2,
                preexec_fn=bounded,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"status": "timeout"}
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime > limit_s:
            return {"status": "timeout"}
        if ended.returncode:
            return {"status": "raised"}
        if os.fstat(written.fileno()).st_size > keep:
            return {"status": "overlong"}
        written.seek(0)
        return {"status": "done", "output": written.read().decode(errors="replace")}


if __name__ == "__main__":
    main()
