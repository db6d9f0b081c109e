"""Rows that name files, and where they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TRAP = '''"""Leaves a mark when it is executed."""
from pathlib import Path

from gym_runtime import Environment, Reply, Task, Verdict

Path({mark!r}).touch()


async def verify(task: Task, reply: Reply) -> Verdict:
    return Verdict(1.0)


environment = Environment(resource=verify, description="A trap.", agent_refs=("the-trap",))
'''


PATHS = {
    "a module here": "trap",
    "a file here": "trap.py",
    "here": "./trap.py",
    "here without ending": "./trap",
    "below": "below/trap.py",
    "below without ending": "below/trap",
    "above": "../trap.py",
    "above without ending": "../trap",
    "absolute": "{folder}/trap.py",
    "absolute without ending": "{folder}/trap",
    "home": "~/trap.py",
    "URL": "file://{folder}/trap.py",
    "NUL": "trap.py\0",
    "NUL inside": "mcqa\0/../trap.py",
    "its agent": "trap_simple_agent",
    "listed by it": "the-trap",
    "dotted": "below.trap",
    "an installed one's file": "mcqa.py",
    "a module of Python": "antigravity",
}


class Place:
    """A working directory with traps all around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "executed"

    def name(self, what: str) -> str:
        return PATHS[what].format(folder=self.folder)

    def rows(self, ref: str, **more: Any) -> Path:
        row = {"responses_create_params": {"input": "go"}, "agent_ref": {"name": ref}, **more}
        path = self.folder / "rows.jsonl"
        path.write_text(json.dumps(row) + "\n")
        return path

    def stored(self, ref: str) -> Path:
        return self.rows(ref, response={"output": []}, reward=0.0, _ng_task_index=0, _ng_rollout_index=0)
