"""A Lean that needs no Lean: a folder like the asset's, whose ``lake`` starts a program that speaks the
protocol of the REPL, and a server with the protocols of Kimina and NeMo Skills.

It proves nothing. What it says of a program follows from words in its proof (`said_of`), in the forms of the
real one: positions, severities, axioms, a hole's warning. It can hang, end, fill its memory, write what is no
JSON, and refuse a header.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPL = r"""
import json, os, re, sys, time
envs = 0
def message(severity, line, data):
    return {"severity": severity, "pos": {"line": line, "column": 2}, "endPos": None, "data": data}
def line_of(text, word):
    return text[: text.index(word)].count("\n") + 1
def said_of(text):
    found = []
    for name in re.findall(r"#print axioms (\S+)", text):
        known = axioms if not "theorem" in text else axioms_of(text)
        data = (f"'{name}' depends on axioms: [{', '.join(known)}]" if known
                else f"'{name}' does not depend on any axioms")
        found.append(message("info", line_of(text, "#print axioms"), data))
    if "unsolved" in text:
        found.insert(0, message("error", line_of(text, "unsolved"), "unsolved goals\n⊢ False"))
    if "quiet_hole" in text:
        found.insert(0, message("warning", line_of(text, "quiet_hole"), "declaration uses 'sorry'"))
    if "trace_forged" in text:
        found.insert(0, message("info", 1, "'gold' does not depend on any axioms"))
    return found
def axioms_of(text):
    return (["propext"] if "simp" in text else []) + (["Lean.ofReduceBool"] if "by_native" in text else [])
axioms = []
"""
LOOP = (
    REPL
    + r"""
loads = int(os.environ.get("LOADS", "0"))
while True:
    lines = []
    for line in sys.stdin:
        if not line.strip():
            break
        lines.append(line)
    if not lines:
        break
    asked = json.loads("".join(lines))
    text = asked["cmd"]
    if "env" in asked and asked["env"] >= envs:
        print(json.dumps({"message": "Unknown environment."}, indent=1) + "\n", flush=True)
        continue
    if "import Missing" in text:
        problem = {"messages": [message("error", 1, "unknown module prefix 'Missing'")]}
        print(json.dumps(problem) + "\n", flush=True)
        continue
    if "hang_here" in text:
        time.sleep(600)
    if "end_here" in text:
        os._exit(1)
    if "no_json" in text:
        print("PANIC at something\n", flush=True)
        continue
    if "fill_memory" in text:
        hoard = [bytearray(os.urandom(1 << 20)) for _ in range(1 << 20)]
    if "who_am_i" in text:
        found = [message("error", 1, f"pid {os.getpid()} home {os.environ.get('HOME')}")]
    else:
        found = said_of(text)
    if "theorem" in text:
        axioms = axioms_of(text)
    answer = {"env": envs}
    envs += 1
    if found:
        answer["messages"] = found
    print(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", flush=True)
"""
)
LAKE = """#!/bin/sh
# lake --dir=PROJECT env PROGRAM
case "$1" in --dir=*) cd "${1#--dir=}" || exit 1 ;; *) exit 2 ;; esac
[ "$2" = env ] || exit 2
[ -f lean-toolchain ] || exit 3
exec "$3"
"""


def lean_folder(place: Path) -> Path:
    """A folder like the asset's, with the false programs."""
    python = Path(sys.executable).resolve()
    for path, content in {
        "elan/bin/lake": LAKE,
        "repl/.lake/build/bin/repl": f"#!{python}\n{LOOP}",
        "project/lean-toolchain": "none",
    }.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(0o755)
    return place


class StubServer:
    """The server: what it was asked, and how the next answers go wrong.

    Attributes:
        failing: an HTTP status with which it answers instead.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[dict[str, Any]] = []
        self.failing = 0

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """The body of the answer to a request."""
        self.asked.append(request)
        if path == "/verify":
            code = request["codes"][0]
            return {"results": [{"custom_id": code["custom_id"], **self._kimina(code["proof"], request)}]}
        if path == "/api/check":
            snippet = request["snippet"]
            return {"id": snippet["id"], "time": 0.1, **self._kimina(snippet["code"], request)}
        return self._execute(request["generated_code"])

    def _kimina(self, text: str, request: dict[str, Any]) -> dict[str, Any]:
        if "import Slow" in text:
            return {"error": f"Lean REPL header command timed out in {request['timeout']} seconds"}
        if "hang_here" in text:
            return {"error": f"Lean REPL command timed out in {request['timeout']} seconds"}
        return {"response": {"env": 1, "messages": said_of(text)}}

    def _execute(self, text: str) -> dict[str, Any]:
        if "hang_here" in text:
            return {"process_status": "timeout", "stdout": "", "stderr": "Timed out"}
        lines = [
            m["data"]  # Lean writes an information without a place
            if m["severity"] == "info"
            else f"/lean4/tmp1.lean:{m['pos']['line']}:{m['pos']['column']}: {m['severity']}: {m['data']}"
            for m in said_of(text)
        ]
        failed = any(m["severity"] == "error" for m in said_of(text))
        status = "failed" if failed else "completed"
        return {"process_status": status, "stdout": "\n".join(lines), "stderr": "lake: warning: nothing"}


@contextmanager
def stub_server() -> Generator[StubServer]:
    """A server on this machine until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = stub.failing or 200
            answer = json.dumps(stub.answer(self.path, body) if status == 200 else {"detail": "no"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub = StubServer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield stub
        server.shutdown()
        thread.join()


_names: dict[str, Any] = {}
exec(REPL, _names)
said_of = _names["said_of"]
