"""Environments that keep or break the contract."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_testing.checks import contract

HEAD = '''"""An environment of the tests."""

import itertools

from gym_runtime import Environment, Episode, Reply, Session, Step, Task, Verdict, tool

numbers = itertools.count()


class GoalTask(Task):
    goal: str
'''


VERIFY = """
def verify(task: GoalTask, reply: Reply) -> Verdict:
    return Verdict(float(reply.text == task.goal))

environment = Environment(resource=verify, description="Say the goal.")
"""


def rows(count: int = 5, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"responses_create_params": {"input": "hi"}, "goal": f"g{n}", "gold": f"g{n}", **fields}
        for n in range(count)
    ]


def load(module: Path) -> LoadedEnvironment:
    sys.modules.pop(f"gym_runtime_file_{module.stem}", None)
    return catalogue.environment(str(module))


def written(folder: Path, text: str, examples: list[Any]) -> Path:
    module = folder / "own.py"
    module.write_text(text)
    module.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in examples))
    return module


async def broken(tmp_path: Path, body: str, examples: list[Any], *, head: str = HEAD) -> dict[str, str]:
    environment = load(written(tmp_path, head + body, examples))
    return {
        finding.rule: finding.detail for finding in await contract.check(environment) if not finding.passed
    }
