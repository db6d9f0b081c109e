"""An office assistant with 27 tools: e-mail, calendar, website analytics, project board and customers.

The outcome counts, not the way there: the rollout's calls and the row's ``ground_truth`` calls are each
replayed on fresh tables, and the reward is 1 if the five tables that can change end up equal, else 0.
Strings are compared in lower case, save the fields ``status``, ``list_name`` and ``board``. A call that
fails or does not fit changes nothing. Rows are told apart by their ids, and new ones are numbered as they
are made: what is made in another order than the ground truth's is something else.

The tools are `tool` methods, not a catch-all: this way their definitions come from their signatures, and
arguments that are lists or objects are refused with the reason, which is the difference to NeMo Gym's
environment of this name as far as the model can see.
Answers are ``{"output": ...}`` as there.

The office's data are our own. A row made from others can only be judged, not played: its people and ids
stand for other things here. It shows in a ground truth of which some call would change nothing here, or in
recorded answers that our tools do not give. Then its calls are replayed on tables with the same ids and
unknown contents, without those that the recording says were refused. What cannot be told so is whether an
update set a field to what it was; it counts as a change.

State is a pure function of the calls, so a session can be rebuilt by replaying them.
Source: the outcome-centric rule of WorkBench (Styles et al. 2024, arXiv:2405.00823).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict
from gym_runtime.environment.environment import published
from gym_runtime.environment.tools import collect_tools, render
from gym_runtime.messages.items import FunctionCall, Part

from gym_resources.extract import jsons
from gym_resources.workplace.analytics import Analytics
from gym_resources.workplace.calendar import Calendar
from gym_resources.workplace.company_directory import CompanyDirectory
from gym_resources.workplace.customer_relationship_manager import CustomerRelationshipManager
from gym_resources.workplace.desk import ACTIONS, failure, refused
from gym_resources.workplace.email import Email
from gym_resources.workplace.project_management import ProjectManagement
from gym_resources.workplace.tables import Tables


class Call(msgspec.Struct, frozen=True):
    """A call of the ground truth; ``arguments`` is JSON text."""

    name: str
    arguments: str


class WorkplaceTask(Task):
    ground_truth: list[Call]


class Workplace(
    Session[WorkplaceTask],
    CustomerRelationshipManager,
    ProjectManagement,
    Analytics,
    Calendar,
    Email,
    CompanyDirectory,
):
    known = True

    async def open(self) -> None:
        self.tables = Tables(known=self.known)

    async def call_unknown_tool(self, name: str, arguments: str) -> str:
        return render({"output": failure(name, "there is no such tool")})

    async def verify(self, reply: Reply) -> Verdict:
        truth = self.task.ground_truth
        answers = {item.call_id: item.output for item in reply.tool_outputs}
        made = [(call, answers.get(call.call_id)) for call in reply.function_calls]
        known = await self._all_matter(truth) and await self._answered_so(made)
        calls = [call for call, answer in made if known or not refused(answer)]
        expected = await self._outcome(truth, known=known)
        differing = (await self._outcome(calls, known=known)).differing(expected)
        return Verdict(0.0 if differing else 1.0, fields={"differing_tables": differing})

    async def _outcome(self, calls: Iterable[Call | FunctionCall], *, known: bool) -> Tables:
        """The tables after these calls on a fresh session. Lookups are left out: they change nothing."""
        session = await self._fresh(known=known)
        for call in calls:
            if call.name in ACTIONS:
                await _TOOLS[call.name].call(session, call.arguments)
        return session.tables

    async def _all_matter(self, truth: Sequence[Call]) -> bool:
        """Whether each call changes the office as the calls before it left it."""
        actions = [call for call in truth if call.name in ACTIONS]
        states = [await self._outcome(actions[:end], known=True) for end in range(len(actions) + 1)]
        return all(before.differing(after) for before, after in pairwise(states))

    async def _answered_so(self, made: Iterable[tuple[FunctionCall, str | list[Part] | None]]) -> bool:
        """Whether our tools answer calls as they were answered, as far as these are in order."""
        session = await self._fresh(known=True)
        for call, answer in made:
            in_order = call.name in _TOOLS and _object(call.arguments) is not None
            if in_order and isinstance(answer, str):
                ours = await _TOOLS[call.name].call(session, call.arguments)
                if _object(answer) != _object(ours):
                    return False
        return True

    async def _fresh(self, *, known: bool) -> Workplace:
        session = Workplace(self.task)
        session.known = known
        await session.open()
        return session


def _object(text: str) -> dict[str, Any] | None:
    return jsons.decode(text, dict[str, Any])


_TOOLS = collect_tools(Workplace)

environment = Environment(
    resource=Workplace,
    description="Carry out an office task with 27 tools; the state of the office decides.",
    domain="agent",
    max_turns=6,
    data_license="Apache-2.0",
    datasets=published("nvidia/Nemotron-RL-agent-workplace_assistant", "Apache-2.0"),
)
