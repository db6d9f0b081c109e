"""The example with rewards of 0 and 1 runs as it stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "signal_cpu"


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_both_ways_learn(tmp_path: Path) -> None:
    command = [sys.executable, "train.py", "--tokens", "60000", "--log", str(tmp_path)]
    subprocess.run(command, cwd=EXAMPLE, check=True)
    for name in ("all-groups", "with-signal"):
        lines = [json.loads(line) for line in (tmp_path / f"{name}-1.jsonl").read_text().splitlines()]
        assert lines[-1]["passed"] > lines[0]["passed"] + 0.003
        assert lines[-1]["tokens"] >= 60_000 // (1 + (name == "with-signal"))
