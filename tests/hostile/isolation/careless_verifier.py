"""A verifier that executes replies, as some libraries do; it is as careless as can be."""

from __future__ import annotations

from pathlib import Path

from gym_runtime.environment import catalogue
from gym_runtime.environment.isolated import verify_isolated
from gym_runtime.environment.verdict import Verdict, make_response

MODULE = '''"""Executes replies."""

import os

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.assets import Asset

RIGHT = "42"


def score(answer: str) -> float:
    return float(answer == RIGHT)


async def verify(task: Task, reply: Reply) -> Verdict:
    said = {"said": ""}
    if reply.text.startswith("import "):
        exec(reply.text, said)
    seen = {name: os.environ.get(name, "") for name in task.names}
    return Verdict(score(reply.text), fields={"said": str(said["said"]), "seen": seen})


class Names(Task):
    names: list[str] = []


verify.__annotations__["task"] = Names
TABLES = Asset(name="tables", description="Tables.", licence="MIT", setting="GYM_TEST_TABLES")
environment = Environment(
    resource=verify, description="Executes.", isolated=True, assets=(TABLES,)
)
'''
ROW = b'{"responses_create_params": {"input": "go"}, "names": ["OPENAI_API_KEY", "GYM_TEST_TABLES"]}'
ATTEMPT = """
def attempt(function, *arguments):
    try:
        return f"done {function(*arguments)}"
    except BaseException as error:
        return type(error).__name__
"""


async def judge(module: Path, reply: str, timeout_s: float = 15) -> Verdict:
    folders = catalogue.environment(str(module)).asset_folders
    return await verify_isolated(str(module), ROW, make_response(reply), timeout_s, folders)


async def said(module: Path, code: str) -> str:
    return (await judge(module, f"import os, sys\n{ATTEMPT}\n{code}")).fields["said"]


async def still_judges(module: Path) -> None:
    assert [(await judge(module, text)).reward for text in ("42", "41")] == [1.0, 0.0]
