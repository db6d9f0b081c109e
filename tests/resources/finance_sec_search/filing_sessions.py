"""Calls of the tools in one session."""

from __future__ import annotations

import json
from typing import Any

from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import Scripted, ScriptedAnswers
from resources.judging import row

ANNUAL = "https://www.sec.gov/Archives/edgar/data/42/000000004226000001/annual.htm"
QUESTION = {"question": "How many?", "expected_answer": "1,284"}
NAME = "finance_sec_search"


async def use(
    *calls: tuple[str, dict[str, Any]], answers: list[Scripted] | None = None, **fields: Any
) -> tuple[list[str], ScriptedAnswers]:
    scripted = ScriptedAnswers({"retrieval": answers or [], "judge": []})
    resource = catalogue.environment(NAME).resource
    task = row(**{**QUESTION, **fields})
    async with session_of(resource, task, scripted.models(resource.roles)) as session:
        said = [await resource.call_tool(session, name, json.dumps(given)) for name, given in calls]
    return [json.loads(one).get("results", one) for one in said], scripted
