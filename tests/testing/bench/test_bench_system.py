"""``gym-runtime bench system``: a whole system is measured, and the engine that answers it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gym_sandbox.processes.tree import members
from gym_testing.bench import instant_engine, loop, system_bench


def post(*items: object) -> bytes:
    body = json.dumps({"model": "bench", "input": items}).encode()
    return b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def answer(connection: socket.socket) -> dict[str, object]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return json.loads(body)["output"][0]


def test_the_engine_calls_a_tool_and_then_answers_however_the_bytes_arrive() -> None:
    with instant_engine.running() as (url, pid):
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in post("go"):
                connection.send(bytes([byte]))
            assert answer(connection)["type"] == "function_call"
            connection.sendall(
                post("go", {"type": "function_call_output", "call_id": "call_1", "output": "{}"})
            )
            assert answer(connection)["type"] == "message"
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_system_is_measured_and_nothing_is_left() -> None:
    script, before = Path(sys.executable).with_name("gym-runtime"), set(members(os.getpid()))
    command = [script, "bench", "system", "--json", "--rollouts", "20", "--in-flight", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {"agent worker", "model worker", "resource worker", "broker", "client"} <= found["parts"].keys()
    assert all(part["cpu_us"] > 0 for name, part in found["parts"].items() if name != "supervisor")
    assert sum(part["cpu_us"] for part in found["parts"].values()) > found["bare_us"] > 0
    assert found["openai_us"] > found["bare_us"]
    assert found["per_s"] > 0
    assert found["python"] == system_bench.python()
    assert set(members(os.getpid())) <= before


def test_rows_differ() -> None:
    rows = loop.rows(3)
    assert len({json.loads(row)["bench_index"] for row in rows}) == 3
