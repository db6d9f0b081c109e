"""Folders of Harbor tasks, written for these tests."""

from __future__ import annotations

from pathlib import Path

TOML = """
schema_version = "1.4"
[environment]
memory_mb = 1024
network_mode = "no-network"
env = { MODE = "fast", KEY = "${GYM_TEST_KEY:-none}" }
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 30.0
[solution]
env = { ANSWER = "3" }
"""
INSTRUCTION = "<!-- canary 1234 -->\n# canary too\n\nCount the lines of data.txt into out.txt.\n"
TESTS = """#!/bin/sh
[ "$MODE$KEY$TEST_DIR" = fastnone/tests ] || exit 1
if [ "$(cat /app/out.txt)" = 3 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
echo "graded in $(pwd)"
"""
SOLUTION = '#!/bin/sh\necho "$ANSWER" >out.txt\n'
STEPS = """
[[steps]]
name = "first"
min_reward = 1.0
[steps.verifier]
env = { WANTED = "one" }
[[steps]]
name = "second"
agent = { timeout_sec = 30.0 }
[steps.verifier]
env = { WANTED = "one two" }
"""


def task(
    folder: Path,
    *,
    toml: str = TOML,
    tests: str = TESTS,
    solution: str | None = SOLUTION,
    instruction: str = INSTRUCTION,
    **files: str,
) -> Path:
    """A task's folder: the files of these texts, and others by their paths."""
    texts = {
        "task.toml": toml,
        "instruction.md": instruction,
        "tests/test.sh": tests,
        "environment/data.txt": "a\nb\nc\n",
        "environment/Dockerfile": "FROM scratch\nCOPY data.txt /app/\n",
        **({"solution/solve.sh": solution} if solution is not None else {}),
        **files,
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, newline="")
    return folder
