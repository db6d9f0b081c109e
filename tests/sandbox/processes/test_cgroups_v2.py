"""Version 2 of control groups, which a machine may not have, on a kernel of our own: user-mode Linux.

Debian's package `user-mode-linux` brings it as one program. It boots with this machine's files, and its first
process plays the service manager, then the container runtime.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = shutil.which("linux.uml")
ROOT = Path(__file__).parents[2]
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t cgroup2 cg /sys/fs/cgroup
export PATH={path} HOME=/tmp PYTHONDONTWRITEBYTECODE=1
cd {root}
echo "+memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
for group in unit container; do mkdir /sys/fs/cgroup/$group; done
where='import os; from gym_sandbox.processes import cgroups; print("WHERE", *cgroups.place(os.getpid()))'
tests="python -m pytest -q -p no:cacheprovider tests/runtime/test_cgroups.py"
(
    echo 0 >/sys/fs/cgroup/unit/cgroup.procs
    python -c "$where"
    python -c 'import os; os.setxattr("/sys/fs/cgroup/unit", "trusted.delegate", b"1")'
    python -c "$where"
    $tests
    echo UNIT $?
)
(
    echo 0 >/sys/fs/cgroup/container/cgroup.procs
    exec unshare --cgroup --mount sh -c '
        umount /sys/fs/cgroup
        mount -t cgroup2 cg /sys/fs/cgroup
        python -c "$2"
        $1 -k "bomb or within"
        echo CONTAINER $?' sh "$tests" "$where"
)
echo o >/proc/sysrq-trigger
sleep 10
"""


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.skipif(KERNEL is None, reason="needs user-mode Linux: apt install user-mode-linux")
def test_the_kernel_keeps_limits_in_a_unit_and_in_a_container(tmp_path: Path) -> None:
    assert KERNEL
    init = tmp_path / "init.sh"
    init.write_text(INIT.format(path=f"{Path(sys.executable).parent}:{os.environ['PATH']}", root=ROOT))
    init.chmod(0o755)
    arguments = [
        "mem=3072M",
        "rootfstype=hostfs",
        "rw",
        f"init={init}",
        "con=null",
        "con0=fd:0,fd:1",
        "quiet",
    ]
    booted = subprocess.run(
        [KERNEL, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        timeout=390,
        check=False,
    )
    said = booted.stdout.decode(errors="replace").replace("\r", "")
    told = [line for line in said.splitlines() if line.startswith(("WHERE", "UNIT", "CONTAINER"))]
    assert "unit was not handed over to this process" in told[0], said
    assert "/sys/fs/cgroup/unit" in told[1], said
    assert told[2] == "UNIT 0", said
    assert "/sys/fs/cgroup'" in told[3], said
    assert told[4] == "CONTAINER 0", said
