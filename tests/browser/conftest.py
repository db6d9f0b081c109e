"""Real runs of three environments, with and without failures, and a browser for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
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
DESK = (
    ["Good morning! What is your full name, and your postcode?"],
    [
        {
            "type": "function_call",
            "call_id": "1",
            "name": "find_customer",
            "arguments": '{"name": "Femi Okafor", "postcode": "62024"}',
        }
    ],
    ["It is done: your lamp goes to Mill Lane 63, Norton."],
)
CUSTOMER = (["Hello. My lamp should go elsewhere."], ["Femi Okafor, 62024."], ["###STOP###"])
JUDGE = (["Both say the same. [[A=B]]"],)
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
    """Runs: two of mcqa and xstest, one with tools, one with a user, one with a judge, one that failed."""
    folder = tmp_path_factory.mktemp("runs")
    answers = tmp_path_factory.mktemp("answers")

    def script(name: str, lines: Iterable[object]) -> str:
        path = answers / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"scripted/{path}"

    for name, lines in (("a", ANSWERS), ("b", OTHER_ANSWERS)):
        model = ("--model", script(name, lines), "--return-token-ids", "--repeats", "4")
        run(folder, f"quiz-{name}", "mcqa", "xstest", *model)
    model = ("--model", script("desk", DESK), "--temperature", "0.5", "--limit", "1")
    run(folder, "desk", "service_desk", *model, "--role", f"user={script('customer', CUSTOMER)}")
    judge = ("--judge", script("judge", JUDGE), "--role-sampling", "judge.temperature=0")
    run(folder, "judged", "equivalence_llm_judge", "--limit", "1", "--model", "scripted/message", *judge)
    run(folder, "office", "workplace_assistant", "--repeats", "2", "--model", "scripted/tool-then-message")
    late = ("--timeout", "0.001", "--max-attempts", "1")
    run(folder, "late", "example_session_state_mgmt", *late, "--model", "scripted/tool-then-message")
    return folder
