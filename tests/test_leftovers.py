"""What a test leaves behind fails the session, by the name of the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LEAVING = """
import subprocess, sys
import leftovers

leftovers.GONE_S = 0.0

SLEEPING = [sys.executable, "-c", "import time; time.sleep(1000)"]


def test_that_ends_what_it_starts():
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_that_leaves_a_child():
    subprocess.Popen(SLEEPING, env={})


def test_that_leaves_an_orphan():
    code = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid)"
    subprocess.run([sys.executable, "-c", code, *SLEEPING], check=True)
"""


@pytest.mark.slow
def test_what_is_left_is_named_with_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "leftovers", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"test_leaving\.py::(\w+): (\d+) .*time\.sleep\(1000\)", done.stdout)
    for _, pid in found:
        os.kill(int(pid), signal.SIGKILL)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert {name for name, _ in found} == {"test_that_leaves_a_child", "test_that_leaves_an_orphan"}, said
