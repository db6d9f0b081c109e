"""The configurations that ship are accepted by the programs they are for."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path

from gym_runtime.system.private_broker import find_binary

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_broker_takes_its_configuration() -> None:
    command = [find_binary(), "-t", "-c", str(DEPLOY / "nats" / "nats.conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_service_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / "gym-runtime@.service")
    assert unit["Service"]["ExecStart"].split()[1:3] == ["start", "%i"]
    assert unit["Service"]["KillMode"] == "mixed"
