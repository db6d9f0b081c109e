"""``gym-runtime gateway`` as a process before a real system."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.main import run
from runtime.cli.started import SCRIPT, Started


@contextmanager
def gateway(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its URL, as it prints it."""
    command = [SCRIPT, "gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1].partition("/v1")[0], process
        finally:
            process.kill()


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data)) as answered:
        return json.load(answered)


@pytest.mark.slow
def test_it_serves_a_running_systems_models_and_writes_the_calls(tmp_path: Path) -> None:
    with (
        Started(tmp_path, "model", "--model", "scripted/echo") as system,
        gateway(tmp_path, "--nats", system.url, "-o", "calls.jsonl", "--return-token-ids") as (url, process),
    ):
        body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
        said = ask(f"{url}/rollouts/r.0.0/v1/chat/completions", body)
        assert said["choices"][0]["message"]["content"] == "hello"
        (call,) = ask(f"{url}/rollouts/r.0.0/calls")["calls"]
        (line,) = (tmp_path / "calls.jsonl").read_text().splitlines()
        assert json.loads(line) == call
        assert call["generation_token_ids"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.slow
def test_an_address_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        Started(tmp_path, "model", "--model", "scripted/echo") as system,
        gateway(tmp_path, "--nats", system.url) as (url, _),
    ):
        port = url.rpartition(":")[2]
        assert run(["gateway", "--nats", system.url, "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_it_needs_a_system(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    assert run(["gateway"]) == 2
    assert "which system?" in capsys.readouterr().err
