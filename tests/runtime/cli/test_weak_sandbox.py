"""Where this machine cannot isolate, code runs with limits only if the command line allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it needs namespaces")]

SCRIPT = str(Path(sys.executable).with_name("gym-runtime"))
NO_NAMESPACES = (
    "unshare",
    "-Ur",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"',
    "sh",
)
"""A user namespace in which no other one can be made, so that bubblewrap cannot isolate."""
RUN = ("run", "structured_outputs", "--model", "scripted/message", "--limit", "1", "-o", "out.jsonl")


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NO_NAMESPACES, SCRIPT, *RUN, *more],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "GYM_SANDBOX"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_machine_that_cannot_isolate_is_refused_unless_a_weak_sandbox_is_allowed(tmp_path: Path) -> None:
    if subprocess.run([*NO_NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no user namespaces")
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert "bubblewrap cannot isolate on this machine" in refused.stderr
    assert "--allow-weak-sandbox" in refused.stderr
    made = run(tmp_path, "--allow-weak-sandbox")
    assert made.returncode == 0, made.stderr
    (row,) = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(row)["reward"] == 0.0


def test_a_machine_that_can_isolate_does_so_also_where_a_weak_sandbox_is_allowed() -> None:
    code = "from gym_sandbox.bubblewrap import *; print(allow_weak(), kind() != 'weak')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False True\n"
