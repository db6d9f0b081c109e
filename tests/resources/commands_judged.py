"""Commands and their judge."""

from __future__ import annotations

import json
from typing import Any

from resources.judging import row

NAME = "terminus_judge"


ONE: dict[str, Any] = {
    "state_analysis": "a",
    "explanation": "b",
    "commands": [{"keystrokes": "ls -la\n", "is_blocking": True, "timeout_sec": 1}],
    "is_task_complete": False,
}


TWO: dict[str, Any] = {
    "analysis": "a",
    "plan": "b",
    "commands": [{"keystrokes": "ls -la\n", "duration": 0.1}],
    "task_complete": False,
}


def task(expected: dict[str, Any], **fields: Any) -> bytes:
    harness = "terminus_1" if "state_analysis" in expected else "terminus_2"
    return row(expected_answer=json.dumps(expected), metadata={"harness": harness}, **fields)


def commands(*texts: str) -> list[dict[str, Any]]:
    return [{"keystrokes": text} for text in texts]
