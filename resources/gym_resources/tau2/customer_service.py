"""A conversation in which only the agent has tools, on a database; the agent ``dialogue`` leads it.

A domain is a subclass with tools. Its state is `Service.records`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
from gym_runtime import Reply, Session, TaskError, Text, Verdict
from gym_runtime.environment import collect_tools
from gym_runtime.errors import UNREADABLE

from gym_resources.tau2.arithmetic import value
from gym_resources.tau2.conversation_verdict import check, verdict
from gym_resources.tau2.refusal import error, tool
from gym_resources.tau2.shared_records import Record, Records
from gym_resources.tau2.task import ServiceTask

T = TypeVar("T", bound=ServiceTask)


class Service(Session[T]):
    """Attributes:
    records: the database as the conversation has changed it.
    """

    records: Records

    async def open(self) -> None:
        check(self.task, self.models.get("judge"))
        if self.task.initial.initialization_actions or self.task.criteria.env_assertions:
            domain = self.task.config.domain
            raise TaskError(f"'initialization_actions' and 'env_assertions' mean nothing in {domain}")
        for action in self.task.criteria.actions or []:
            if action.requestor != "assistant" or action.name not in _tools(type(self)):
                raise TaskError(f"'evaluation_criteria.actions': the agent has no tool '{action.name}'")
        self.records = Records(self.task.tables())

    async def verify(self, reply: Reply) -> Verdict:
        state: dict[str, bool] = {}
        if "DB" in self.task.criteria.reward_basis:
            state["db"] = self.records.changed() == (await self._expected()).changed()
        stop = _stop_reason(reply)
        ended = stop is None or stop in self.task.signals
        return await verdict(self.task, reply, self.models.get("judge"), state, ended=ended)

    async def _expected(self) -> Records:
        """The database after the expected calls; one that fails changes nothing, as for the authors."""
        gold = type(self)(self.task)
        gold.records = Records(self.task.tables())
        for action in self.task.criteria.actions or []:
            await _tools(type(self))[action.name].call(gold, msgspec.json.encode(action.arguments).decode())
        return gold.records

    @tool
    def calculate(self, expression: str) -> Text:
        """Calculate with numbers, + - * / and parentheses, such as '2 * (3 + 4)'."""
        try:
            return Text(round(value(expression), 2))
        except ValueError as wrong:
            raise error(str(wrong)) from wrong

    @tool
    def transfer_to_human_agents(self, summary: str) -> Text:
        """Hand the customer over to a human agent: asked for one, or if policy and tools do not help."""
        return Text("Transfer successful")

    def find(self, table: str, key: str, what: str) -> Record:
        """A record to read.

        Raises:
            ToolError: no such record exists.
        """
        found = self.records.find(table, key)
        if found is None:
            raise error(f"{what} {key[:100]!r} not found")
        return found


@cache
def _tools(service: type[Service[Any]]) -> dict[str, Any]:
    return collect_tools(service)


class _Metadata(msgspec.Struct, frozen=True):
    stop_reason: str | None = None


_decode_metadata = msgspec.json.Decoder(_Metadata | None).decode


def _stop_reason(reply: Reply) -> str | None:
    """Which signal or limit ended the conversation, if the agent says so."""
    try:
        found = _decode_metadata(reply.response.metadata)
    except UNREADABLE:
        return None
    return found and found.stop_reason
