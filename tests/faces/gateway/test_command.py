"""``gym-runtime gateway`` as a process before a real system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.cli.main import run
from runtime.cli.started import SCRIPT, Started

SECRET = "what launcher and gateway share"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with Started(tmp_path_factory.mktemp("system"), "model", "--model", "scripted/echo") as started:
        yield started


@contextmanager
def gateway(
    folder: Path, *arguments: str, secret: str = SECRET
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its URL, as it prints it."""
    command = [SCRIPT, "gateway", *arguments]
    environment = {**os.environ, "GYM_GATEWAY_SECRET": secret}
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1].partition("/v1")[0], process
        finally:
            process.kill()


def ask(url: str, body: Any = None, key: str = "none", method: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, data, headers, method=method or None)
    with urllib.request.urlopen(request) as answered:
        return json.load(answered)


@pytest.mark.slow
def test_it_serves_a_running_systems_models_and_writes_the_calls(system: Started, tmp_path: Path) -> None:
    options = ("-o", "calls.jsonl", "--return-token-ids")
    with gateway(tmp_path, "--nats", system.url, *options) as (url, process):
        body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
        told = ask(f"{url}/rollouts/r.0.0", key=SECRET, method="POST")
        at = f"{url}/rollouts/{told['name']}"
        said = ask(f"{at}/v1/chat/completions", body)
        assert said["choices"][0]["message"]["content"] == "hello"
        (call,) = ask(f"{at}/calls")["calls"]
        (line,) = (tmp_path / "calls.jsonl").read_text().splitlines()
        assert json.loads(line) == call
        assert call["generation_token_ids"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{url}/rollouts/r.0.0/calls")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_it_says_which_secret_it_made_and_logs_as_json(system: Started, tmp_path: Path) -> None:
    options = ("--model-pool", "judge")
    with gateway(tmp_path, "--nats", system.url, *options, secret="") as (url, process):
        assert process.stdout is not None
        made = process.stdout.readline().strip().removeprefix("export GYM_GATEWAY_SECRET=")
        told = ask(f"{url}/rollouts/r", key=made, method="POST")
        assert told["key"] == f"gym-{told['name']}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    logged = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    # That nothing serves this pool; a busy machine may have a slow link, too.
    (said,) = [line for line in logged if "judge" in line["event"]]
    assert (said["worker"], said["level"]) == ("gateway", "warning")


@pytest.mark.slow
def test_an_address_that_is_taken(
    system: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gateway(tmp_path, "--nats", system.url) as (url, _):
        port = url.rpartition(":")[2]
        assert run(["gateway", "--nats", system.url, "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_it_needs_a_system(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    assert run(["gateway"]) == 2
    assert "which system?" in capsys.readouterr().err
