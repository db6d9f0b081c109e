"""Real runs of three environments, with and without failures, and a browser for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.chromium import Chromium, executable

ANSWERS = (
    [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Only B fits."}]},
        "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'> <b>The second one.</b>\n"
        "```python\nprint(1 < 2)\n```\n\\boxed{B}",
    ],
)
OTHER_ANSWERS = (["<think>Perhaps C?</think> It is \\boxed{C}"],)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    if executable() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    browser = Chromium()
    yield browser
    browser.close()


def run(folder: Path, name: str, *arguments: str) -> None:
    """Make rollouts with the command line, as users do."""
    command = [sys.executable, "-m", "gym_runtime.cli.main", "run", *arguments]
    done = subprocess.run(
        [*command, "--output", str(folder / f"{name}.jsonl")], capture_output=True, timeout=60, check=False
    )
    assert (folder / f"{name}_run.json").is_file(), done.stderr.decode()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: two of mcqa and xstest, one with tools, one in which every rollout failed."""
    folder = tmp_path_factory.mktemp("runs")
    answers = tmp_path_factory.mktemp("answers")
    for name, lines in (("a", ANSWERS), ("b", OTHER_ANSWERS)):
        script = answers / f"{name}.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        model = ("--model", f"scripted/{script}", "--return-token-ids", "--repeats", "4")
        run(folder, f"quiz-{name}", "mcqa", "xstest", *model)
    run(folder, "office", "workplace_assistant", "--repeats", "2", "--model", "scripted/tool-then-message")
    late = ("--timeout", "0.001", "--max-attempts", "1")
    run(folder, "late", "example_session_state_mgmt", *late, "--model", "scripted/tool-then-message")
    return folder
