"""What the environments' tests share: rows and rollouts made by hand, and rows in NeMo Gym's formats.

The rows in `ROWS` are our own. Where `NEMO_GYM_ROWS` exists, NeMo Gym's own
rows are tested as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_runtime.environment import LoadedEnvironment, catalogue, requirements
from gym_runtime.environment.isolated import judge_recorded
from gym_runtime.environment.replaying import rejudge, session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from gym_runtime.environment.verdict import Verdict, make_response
from gym_runtime.errors import UsageError

ROWS = Path(__file__).parent / "rows"
NEMO_GYM_ROWS = Path(__file__).parents[3] / "shared/data/nemo_gym_examples"


NO_TESTS = {"code_fim", "competitive_coding_challenges", "evalplus"}
"""Environments whose rows of theirs name a test without having it."""

NO_ROWS = {"example_questions.jsonl"}
"""Files of theirs that are made into rows with a prompt; those named multi_turn_ are recorded proofs."""


def usable(environment: str) -> LoadedEnvironment:
    """An environment; the test is skipped where its packages or programs are missing."""
    loaded = catalogue.environment(environment)
    try:
        requirements.require(loaded)
    except UsageError as error:
        pytest.skip(error.message)
    return loaded


def call(name: str, arguments: object, call_id: str = "c") -> dict[str, Any]:
    """A function call; arguments that are a text stand as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def output(text: str, call_id: str = "c") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def row(**fields: Any) -> bytes:
    return msgspec.json.encode({"responses_create_params": {"input": "go"}, **fields})


async def judge(environment: str, task: bytes, *items: dict[str, Any] | str) -> Verdict:
    return await rejudge(catalogue.environment(environment).resource, task, make_response(*items))


async def judged_by(
    environment: str, answers: Mapping[str, Sequence[Scripted]], reply: str, **fields: Any
) -> tuple[Verdict, list[str]]:
    """The verdict on a reply whose roles answer from a script, and the prompts that these were given."""
    scripted, loaded = ScriptedAnswers(answers), catalogue.environment(environment)
    models = scripted.models(loaded.resource.roles)
    verdict = await judge_recorded(loaded, row(**fields), make_response(reply), models)
    return verdict, [items[-1]["content"] for _, items in scripted.asked]


def quotations(prompt: str) -> list[str]:
    """What stands between the <quoted> tags of a prompt, in order."""
    return [part.partition("\n</quoted>")[0] for part in prompt.split("\n<quoted>\n")[1:]]


async def outputs(environment: str, task: bytes, calls: list[tuple[str, object]]) -> list[str]:
    """What the tools of one session answer, call by call."""
    resource = catalogue.environment(environment).resource
    async with session_of(resource, task) as session:
        return [
            await resource.call_tool(session, name, given if isinstance(given, str) else json.dumps(given))
            for name, given in calls
        ]


def row_files(environment: str) -> list[Path]:
    """The files of rows in NeMo Gym's format, our own first."""
    folder = NEMO_GYM_ROWS / environment
    theirs = [] if environment in NO_TESTS else sorted(folder.glob("*.jsonl"))
    rows = [path for path in theirs if path.name not in NO_ROWS and not path.name.startswith("multi_turn_")]
    return [ROWS / f"{environment}.jsonl", *rows]


def nemo_gym_rows(environment: str) -> list[bytes]:
    """The rows of these files."""
    return [line for path in row_files(environment) for line in path.read_bytes().splitlines()]
