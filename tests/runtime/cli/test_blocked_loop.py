"""A verifier that blocks its worker's event loop while a run is made: it is named, and the run goes on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from runtime.cli.started import SCRIPT

BLOCKING = '''"""Waits without ``await``."""

import time

from gym_runtime import Environment, Reply, Task, Verdict


class Question(Task):
    pass


async def verify(task: Question, reply: Reply) -> Verdict:
    time.sleep(4)
    return Verdict(1.0)


environment = Environment(resource=verify, description="Blocks.")
'''
ROW = '{"responses_create_params": {"input": "go"}}\n'
WITHIN_S = 5.0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_verifier_that_blocks_the_event_loop_is_named_within_5_s_and_the_run_ends(tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    (tmp_path / "rows.jsonl").write_text(ROW)
    done = subprocess.run(
        [SCRIPT, "run", "blocking", "--input", "rows.jsonl", "--model", "scripted/message"],
        capture_output=True, text=True, cwd=tmp_path, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if "event loop of a worker is blocked" in line)
    assert re.search(r"blocking\.py:\d+ in verify", line)
    blocked = re.search(r"blocked_s=([\d.]+)", line)
    assert blocked
    assert float(blocked[1]) < WITHIN_S
