"""``gym-runtime gym-server`` as a process before a real system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from gym_runtime.cli.main import run
from runtime.cli.started import SCRIPT, Started


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with Started(tmp_path_factory.mktemp("system"), "resource:mcqa") as started:
        yield started


def test_it_needs_a_system(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GYM_NATS_URL", raising=False)
    assert run(["gym-server"]) == 2
    assert "which system?" in capsys.readouterr().err


@pytest.mark.slow
def test_beyond_this_machine_it_makes_a_key(system: Started, tmp_path: Path) -> None:
    command = [SCRIPT, "gym-server", "--nats", system.url, "--host", "0.0.0.0", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "GYM_SERVER_KEY"}
    with (
        (tmp_path / "stderr").open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            port = process.stdout.readline().split()[1].rstrip(",").rpartition(":")[2]
            made = process.stdout.readline().strip().removeprefix("export GYM_SERVER_KEY=")
            url = f"http://127.0.0.1:{port}/global_config_dict_yaml"
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(url)
            request = urllib.request.Request(url, headers={"authorization": f"Bearer {made}"})
            with urllib.request.urlopen(request) as answer:
                config = json.loads(json.load(answer))
            agent = config["mcqa_simple_agent"]["responses_api_agents"]["simple_agent"]
            assert agent == {"host": f"gym:{made}@127.0.0.1", "port": int(port)}
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    logged = [json.loads(line)["event"] for line in (tmp_path / "stderr").read_text().splitlines()]
    assert any("no worker serves model 'policy'" in line for line in logged)


@pytest.mark.slow
def test_the_file_for_nemo_gyms_configuration(
    system: Started, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_SERVER_KEY", "s3cret")
    assert run(["gym-server", "mcqa", "--nats", system.url, "--host", "gym.internal", "--print-config"]) == 0
    assert 'simple_agent: {"host": "gym:s3cret@gym.internal", "port": 11000}' in capsys.readouterr().out
    assert run(["gym-server", "mcqas", "--nats", system.url]) == 2
    assert "no worker serves environment 'mcqas'" in capsys.readouterr().err
