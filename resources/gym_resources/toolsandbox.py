"""Errands on a telephone, for a simulated user: its tools depend on each other's state (ToolSandbox).

A model in the role ``user`` asks for something (agent ``dialogue``), such as a message to a friend. The
model has tools for settings, contacts, messages, reminders, times, units and services on the network. Some
need others first: without cellular service no message is sent, in low battery mode nothing is switched on.

A row has the telephone's state (``device``), what its ``services`` know, and ``milestones``: how a table
should be at some time, what should be called, or what the user should be told, each later than those that it
comes ``after``. The reward is the mean similarity of the milestones in their best match with the
conversation, 0 to 1; it is 0 where a ``minefield`` is hit: a milestone that must never hold in full. The
row's tools are all that the model may call, under the names that ``tool_names`` gives them. Where
information or a tool is missing on purpose, the milestone is to say so, and the minefield is to act all the
same.

Tools, measures and the match of milestones are those of the authors' paper and documentation; code, errors
and rows are our own. Not here: the authors' 1,032 scenarios, which are licensed for non-commercial use (CC-
BY-NC 4.0) and written as Python code. NeMo Gym's rows name them by their number alone (``task_idx``), so
they are refused. Different on purpose: times are UTC at a clock of the row that stands still; services on
the network answer from the row, in place of RapidAPI; distances are those on a sphere; the user ends the
conversation by ``###STOP###`` in place of a tool. Source: Lu et al. 2024, arXiv:2408.04682,
github.com/apple/ToolSandbox.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Annotated, Any, cast

import anyio.lowlevel
import anyio.to_thread
import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict
from gym_runtime.environment import collect_tools
from gym_runtime.messages import FunctionCall, Message

from gym_resources.expected_calls.expected import decoded
from gym_resources.judging.texts import message_lines
from gym_resources.phone_sandbox import milestones
from gym_resources.phone_sandbox.look_ups import LookUps, Services
from gym_resources.phone_sandbox.milestones import Milestone, Moment, Tables
from gym_resources.phone_sandbox.pocket_device import Device

Milestones = Annotated[list[Milestone], msgspec.Meta(max_length=12)]


class _Offered(msgspec.Struct):
    name: str = ""


class PhoneTask(Task):
    """An errand.

    Attributes:
        simulated_user: who the user is and what it wants; the agent ``dialogue`` reads it.
        tool_names: what tools are called here, where not by their own names.
    """

    simulated_user: dict[str, Any]
    milestones: Milestones
    device: Device = msgspec.field(default_factory=Device)
    services: Services = msgspec.field(default_factory=Services)
    minefields: Milestones = []  # noqa: RUF012 - a msgspec field, copied for each
    tool_names: dict[str, str] = {}  # noqa: RUF012

    def __post_init__(self) -> None:
        if problem := milestones.problem(self.milestones) or ("" if self.milestones else "there are none"):
            raise ValueError(f"'milestones': {problem}")
        if any(one.earlier() for one in self.minefields):
            raise ValueError("'minefields' come after nothing and refer to the beginning")
        if wrong := set(self.tool_names.values()) - set(tools()):
            raise ValueError(f"'tool_names': there is no tool '{wrong.pop()[:100]}'")
        for name in self.offered():
            if self.tool(name) not in tools():
                raise ValueError(f"'tools': there is no tool '{name[:100]}'")

    def offered(self) -> set[str]:
        """The names of the tools that the model may call."""
        return {msgspec.json.decode(one, type=_Offered).name for one in self.responses_create_params.tools}

    def tool(self, name: str) -> str:
        """The own name of a tool."""
        return self.tool_names.get(name, name)


class ToolSandbox(Session[PhoneTask]):
    judged_by_transcript = True

    async def open(self) -> None:
        self.phone = LookUps(deepcopy(self.task.device), self.task.services)

    async def call_unknown_tool(self, name: str, arguments: str) -> str | None:
        return await self._called(self.phone, name, arguments)

    async def verify(self, reply: Reply) -> Verdict:
        moments = await self._moments(reply)
        hit = await anyio.to_thread.run_sync(milestones.hit, self.task.minefields, moments)
        scores = await anyio.to_thread.run_sync(milestones.matched, self.task.milestones, moments)
        similarity = sum(scores) / len(scores)
        return Verdict(
            0.0 if hit else similarity,
            fields={"milestone_similarities": scores, "similarity": similarity, "minefield_hit": hit},
        )

    async def _called(self, phone: LookUps, name: str, arguments: str) -> str | None:
        known = tools().get(self.task.tool(name)) if name in self.task.offered() else None
        return None if known is None else str(await known.call(phone, arguments))

    async def _moments(self, reply: Reply) -> list[Moment]:
        """The beginning, then the moment after each message and each call, which are made again."""
        phone = LookUps(deepcopy(self.task.device), self.task.services)
        moments = [_moment(phone)]
        for item in reply.items:
            await anyio.lowlevel.checkpoint()  # a reply may hold thousands of calls
            if isinstance(item, FunctionCall):
                await self._called(phone, item.name, item.arguments)
                given = cast(
                    "dict[str, Any]", found if isinstance(found := decoded(item.arguments), dict) else {}
                )
                called = {**given, "tool_name": self.task.tool(item.name)}
                moments.append(_moment(phone, moments[-1].tables, calls=called))
            elif isinstance(item, Message) and item.role == "assistant":
                moments.append(_moment(phone, moments[-1].tables, said={"content": message_lines(item)}))
        return moments


def _moment(phone: LookUps, before: Tables | None = None, **happened: dict[str, Any]) -> Moment:
    """The tables as they are now; one that is as it was ``before`` is the same object, which saves memory."""
    tables: Tables = {"said": [], "calls": [], **phone.device.tables()}
    tables |= {name: rows for name, rows in (before or {}).items() if rows == tables[name]}
    return Moment({**tables, **{name: [record] for name, record in happened.items()}})


@cache
def tools() -> dict[str, Any]:
    """The telephone's tools by their own names."""
    return collect_tools(LookUps)


environment = Environment(
    resource=ToolSandbox,
    description="Errands on a telephone whose tools depend on its state, for a simulated user (ToolSandbox).",
    domain="agent",
    agent="dialogue",
    max_turns=30,
    roles=("user",),
    agent_refs=("toolsandbox_agent",),
    data_license="Apache-2.0 (own rows); the authors' scenarios are CC-BY-NC-4.0 and not here",
)
