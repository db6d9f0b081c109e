"""What a worker started ends with it, even if it is killed."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from gym_models.vllm_engine.orphans import killed_with_us

CHILD = [sys.executable, "-c", "import time; time.sleep(600)"]
OWNER = f"""
import subprocess, time
from gym_models.vllm_engine.orphans import descendants, killed_with_us
child = subprocess.Popen({CHILD!r}, start_new_session=True)
with killed_with_us(descendants()):
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_owner_takes_its_processes_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        assert child.is_running()
        owner.kill()
    child.wait(timeout=40)


def test_who_leaves_in_order_leaves_the_rest_to_others() -> None:
    with subprocess.Popen(CHILD) as child:
        with killed_with_us([child.pid]):
            pass
        assert child.poll() is None
        child.kill()
