"""A hundred schedules of faults, as this user and as one without privileges: nothing is left behind.

`faults.test_schedules` has what a schedule is, and what is looked at after it: rows, sessions, streams,
processes, temporary files. CI plays one of them.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

SCHEDULES = 100
LIMIT_S = 7200
ROOT = Path(__file__).parents[2]
SUITE = "tests/faults/test_schedules.py"
UNPRIVILEGED = "nobody"

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(LIMIT_S)]


@pytest.mark.parametrize("user", [None, UNPRIVILEGED])
def test_a_hundred_schedules_leave_nothing_behind(user: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "schedules"
    folder.mkdir()
    known = None
    if user is not None:
        if os.geteuid():
            pytest.skip("only root can become another user; without privileges the other test is the same")
        known = pwd.getpwnam(user)
        os.chown(folder, known.pw_uid, known.pw_gid)
        for parent in tmp_path.parents[:2]:
            parent.chmod(0o711)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            # Hypothesis keeps its examples beside the code, where another user may not write.
            env={**os.environ, "HOME": str(folder), "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "examples")},
            capture_output=True,
            text=True,
            user=known.pw_uid if known else None,
            group=known.pw_gid if known else None,
            extra_groups=[] if known else None,
        )

    try:
        run("-c", "import gym_runtime")
    except PermissionError:
        pytest.fail(f"'{user}' cannot run {sys.executable}: install Python where all users may read it")
    suite = ["-m", "pytest", SUITE, "-q", "-p", "no:cacheprovider"]
    done = run(*suite, "--seeds", str(SCHEDULES), "--basetemp", str(folder / "of"))
    assert done.returncode == 0, done.stdout[-20_000:]
