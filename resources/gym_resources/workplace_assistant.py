"""An office assistant with 27 tools: e-mail, calendar, website analytics, project board and customers.

Only the outcome counts: the rollout's calls and the row's ``ground_truth`` calls are each
replayed on fresh tables, and the reward is 1 if the five tables that can change end up equal, else 0. Strings
are compared in lower case, except the fields ``status``, ``list_name`` and ``board``. A call that fails or
does not fit changes nothing; tool outputs in a recording are ignored. Rows are identified by their ids and
numbers, and new rows are numbered in the order of their creation: rows created in another order than the
ground truth's differ from it (`gym_resources.workplace.tables`).

The row's ``office`` names its tables: ``brightmoor`` is our own, whose tables are shipped; a row without the
field is for the tables of NeMo Gym. Those are an asset: ``gym-runtime prepare --assets workplace_assistant``
fetches them from its repository, at one commit. Their digests are not published, so the first download is
trusted, and later ones and every use are checked against it; or ``GYM_WORKPLACE_DATA`` names its folder
``csv_data``, or a flat folder with the same files. Without them such a row is refused before the first model
call.

Tools, rows and rewards are those of NeMo Gym's environment of this name. The tools are `tool` methods, not
one catch-all, so their definitions come from their signatures, and arguments that are lists or objects are
refused with the reason. A number equals its text (in NeMo Gym a number compares as missing); an event's start
is a date or time of ISO 8601 (in NeMo Gym any format that pandas reads).

State is a pure function of the calls, so a session can be rebuilt by replaying them.
Source: the outcome-centric rule of WorkBench (Styles et al. 2024, arXiv:2405.00823).
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio.lowlevel
import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, published
from gym_runtime.environment import collect_tools, render
from gym_runtime.messages import FunctionCall

from gym_resources.workplace.analytics import Analytics
from gym_resources.workplace.calendar_tools import Calendar
from gym_resources.workplace.company_directory import CompanyDirectory
from gym_resources.workplace.customer_relationship_manager import CustomerRelationshipManager
from gym_resources.workplace.email import Email
from gym_resources.workplace.office import TABLES, Name, office
from gym_resources.workplace.project_management import ProjectManagement
from gym_resources.workplace.shared_parts import ACTIONS, failure
from gym_resources.workplace.tables import Tables


class Call(msgspec.Struct, frozen=True):
    """A call of the ground truth; ``arguments`` is JSON text."""

    name: str
    arguments: str


class WorkplaceTask(Task):
    ground_truth: list[Call]
    office: Name = "nemo_gym"

    def check_assets(self) -> None:
        office(self.office)


class Workplace(
    Session[WorkplaceTask],
    CustomerRelationshipManager,
    ProjectManagement,
    Analytics,
    Calendar,
    Email,
    CompanyDirectory,
):
    async def open(self) -> None:
        self.tables = Tables(office(self.task.office))

    async def call_unknown_tool(self, name: str, arguments: str) -> str:
        return render({"output": failure(name, "there is no such tool")})

    async def verify(self, reply: Reply) -> Verdict:
        expected = await self._outcome(self.task.ground_truth)
        differing = (await self._outcome(reply.function_calls)).differing(expected)
        return Verdict(0.0 if differing else 1.0, fields={"differing_tables": differing})

    async def _outcome(self, calls: Iterable[Call | FunctionCall]) -> Tables:
        """The tables after these calls on a fresh session. Lookups are left out: they change nothing."""
        session = Workplace(self.task)
        await session.open()
        for call in calls:
            if call.name in ACTIONS:
                await _TOOLS[call.name].call(session, call.arguments)
                await anyio.lowlevel.checkpoint()  # a reply may hold ten thousand calls
        return session.tables


_TOOLS = collect_tools(Workplace)

environment = Environment(
    resource=Workplace,
    description="Carry out an office task with 27 tools; the state of the office decides.",
    domain="agent",
    max_turns=6,
    assets=(TABLES,),
    data_license="Apache-2.0",
    datasets=published("nvidia/Nemotron-RL-agent-workplace_assistant", "Apache-2.0"),
)
