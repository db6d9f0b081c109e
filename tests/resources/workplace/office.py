"""What the tests of the office share: a session, calls of its tools, and verdicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from gym_resources.workplace.office import office
from gym_resources.workplace.tables import Tables
from gym_resources.workplace_assistant import Workplace, environment
from gym_runtime import Reply, Verdict
from gym_runtime.environment.resource import Resource

RAVI = "ravi.joshi@brightmoor.example"
NO_SUCH = "99999999"
CRM = "customer_relationship_manager"
PM = "project_management"
EVENT = {
    "event_name": "Tea",
    "participant_email": RAVI,
    "event_start": "2023-12-01 09:00:00",
    "duration": "30",
}
TASK = {
    "task_name": "Tidy up",
    "assigned_to_email": "dmitri.volkov@brightmoor.example",  # who has a task already
    "list_name": "Backlog",
    "due_date": "2023-12-24",
    "board": "Design",
}
CUSTOMER = {"customer_name": "Ada Brook", "assigned_to_email": RAVI, "status": "Lead"}
PLOT = {
    "time_min": "2023-11-01",
    "time_max": "2023-11-30",
    "value_to_plot": "user_engaged",
    "plot_type": "bar",
}

Call = tuple[str, dict[str, Any] | str]


@cache
def resource() -> Resource:
    return environment.build()


def row(ground_truth: Iterable[Call] = ()) -> bytes:
    truth = [{"name": name, "arguments": _text(arguments)} for name, arguments in ground_truth]
    fields = {"ground_truth": truth, "office": "brightmoor"}
    return json.dumps({"responses_create_params": {"input": []}, **fields}).encode()


def fresh() -> Tables:
    return Tables(office("brightmoor"))


def _text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def opened() -> Workplace:
    session = asyncio.run(resource().open(row()))
    assert isinstance(session, Workplace)
    return session


def answer(session: Workplace, name: str, arguments: dict[str, Any] | str) -> str:
    return asyncio.run(resource().call_tool(session, name, _text(arguments)))


def call(session: Workplace, name: str, /, **arguments: Any) -> Any:
    """What a tool's answer holds under ``output``, its only field."""
    decoded = json.loads(answer(session, name, arguments))
    assert list(decoded) == ["output"]
    return decoded["output"]


def judge(predicted: Iterable[Call], ground_truth: Iterable[Call]) -> Verdict:
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": _text(arguments)}
        for number, (name, arguments) in enumerate(predicted)
    ]

    async def verdict() -> Verdict:
        session = await resource().open(row(ground_truth))
        return await resource().verify(session, Reply.of(*calls, "Done.").raw)

    return asyncio.run(verdict())


def score(predicted: Iterable[Call], ground_truth: Iterable[Call]) -> float:
    return judge(predicted, ground_truth).reward
