"""The stub engine itself: plausible to OpenAI's own types, honest in its counts, ended when it should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest
from models.model_calls import TOOL, USER
from stubs import stub_engine
from stubs.stub_behaviour import FAULTS
from stubs.stub_engine import StubEngine

CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": TOOL["parameters"]}}
COMMAND = stub_engine.COMMAND


def post(url: str, body: dict[str, Any], **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_responses_as_the_client_reads_them(stub: StubEngine, tools: list[Any]) -> None:
    from openai.types.responses import Response

    status, body = post(f"{stub.url}/responses", {"model": "stub", "input": [USER], "tools": tools})
    assert status == 200
    found = Response.model_validate_json(body)
    assert [item.type for item in found.output] == ["function_call" if tools else "message"]
    assert found.usage is not None


@pytest.mark.parametrize("tools", [[], [CHAT_TOOL]])
def test_completions_as_the_client_reads_them(stub: StubEngine, tools: list[Any]) -> None:
    from openai.types.chat import ChatCompletion

    status, body = post(f"{stub.url}/chat/completions", {"model": "stub", "messages": [USER], "tools": tools})
    assert status == 200
    (choice,) = ChatCompletion.model_validate_json(body).choices
    assert choice.finish_reason == ("tool_calls" if tools else "stop")
    if tools:
        assert choice.message.tool_calls
        assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "San Francisco"}  # type: ignore[union-attr]


def test_faults_by_the_models_name(stub: StubEngine) -> None:
    for fault, status in (("401", 401), ("404", 404), ("429", 429), ("500", 500), ("context", 400)):
        assert post(f"{stub.url}/responses", {"model": f"fault:{fault}", "input": "x"})[0] == status
    assert post(f"{stub.url}/responses", {"model": "nobody", "input": "x"})[0] == 404
    assert post(f"{stub.url}/responses", {"model": "stub"})[0] == 400
    assert post(f"{stub.url}/nothing", {})[0] == 404


@pytest.mark.slow
def test_random_faults_are_the_same_for_the_same_seed() -> None:
    def statuses() -> list[int]:
        with stub_engine.running("--fault", "503=0.3", "--seed", "7") as stub:
            return [post(f"{stub.url}/responses", {"model": "stub", "input": "x"})[0] for _ in range(40)]

    first = statuses()
    assert first == statuses()
    assert 4 <= first.count(503) <= 20


def test_counts(stub: StubEngine) -> None:
    stub.stats(reset=True)
    for _ in range(3):
        post(f"{stub.url}/responses", {"model": "stub", "input": "x"})
    found = stub.stats()
    assert (found.requests, found.in_flight, found.max_in_flight, found.aborted) == (3, 0, 1, 0)


@pytest.mark.parametrize("way", ["eof", "sigterm"])
def test_it_ends(way: str) -> None:
    command = [*COMMAND, "--exit-on-eof"] if way == "eof" else COMMAND
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().startswith(b"http://127.0.0.1:")
        if way == "eof":
            process.stdin.close()
        else:
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0


def test_an_unknown_fault_is_refused() -> None:
    done = subprocess.run([*COMMAND, "--fault", "508"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in FAULTS)
