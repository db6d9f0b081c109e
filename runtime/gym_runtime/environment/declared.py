"""Environments whose code is elsewhere: what a worker declares of one, and what others make of it.

Rows can be read for it, and rollouts of them be asked for. Its code is on the resource workers that serve it,
so rows are checked for missing fields here, and for the fields' types by the workers.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.assets import Asset
from gym_runtime.environment.environment import AgentChoice, Environment, LoadedEnvironment
from gym_runtime.environment.roles import Role
from gym_runtime.environment.shapes import Candidates, Episode, Session, Task, VerifyFunction
from gym_runtime.environment.tools import Tool
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import RuntimeFault
from gym_runtime.messages.calls import Declaration, DeclaredRole

_SAME = (
    *("agent", "agent_options", "max_turns", "timeout_s", "parallel_tools", "replayable", "opens_first"),
    *("agent_sampling", "repeats", "reads_input"),
)
"""What an environment and its declaration say under the same name, as values of the same type."""


def declaration(environment: LoadedEnvironment) -> Declaration:
    """The declaration of a loaded environment."""
    definition, resource = environment.definition, environment.resource
    fields = msgspec.structs.fields(resource.task_type)
    return Declaration(
        **{name: getattr(definition, name) for name in _SAME},
        name=environment.name,
        agents={ref: (choice.name, choice.options) for ref, choice in definition.agents.items()},
        shape=definition.shape,
        roles=[DeclaredRole(name=role.name, optional=role.optional) for role in definition.declared_roles],
        fields={one.encode_name: one.required for one in fields if one.name != "responses_create_params"},
        tools=[Raw(msgspec.json.encode(tool.definition())) for tool in resource.tools.values()],
        assets=[asset.name for asset in definition.assets],
        agent_refs=list(definition.agent_refs),
        settings=definition.agent_settings,
        defaults=environment.settings,
        compares=definition.compare is not None,
    )


def from_declaration(declared: Declaration) -> LoadedEnvironment:
    """A declared environment. It opens no sessions here."""
    definition = Environment(
        **{name: getattr(declared, name) for name in _SAME},
        resource=_resource(declared),
        description="",
        agents={ref: AgentChoice(name, options) for ref, (name, options) in declared.agents.items()},
        roles=tuple(Role(name=role.name, optional=role.optional) for role in declared.roles),
        assets=tuple(Asset(name=name, description="", licence="") for name in declared.assets),
        agent_refs=tuple(declared.agent_refs),
        agent_settings=declared.settings,
        compare=_compared_elsewhere if declared.compares else None,
    )
    resource = definition.build()
    resource.tools = {tool.name: tool for tool in map(_DeclaredTool, declared.tools)}
    return LoadedEnvironment(
        name=declared.name,
        definition=definition,
        resource=resource,
        source=Path(f"{declared.name}.py"),
        settings=declared.defaults,
    )


def _compared_elsewhere(candidates: Candidates[Task]) -> list[Verdict]:
    raise RuntimeFault("the rollouts of a row are compared by the environment's workers")


class _DeclaredTool(Tool):
    """A tool whose schema is known; the worker calls it."""

    def __init__(self, definition: Raw) -> None:
        self._definition: dict[str, Any] = msgspec.json.decode(definition)
        self.name = self._definition["name"]

    def definition(self) -> dict[str, Any]:
        return self._definition

    async def call(self, session: object, arguments: str) -> str:
        raise RuntimeFault(f"tool '{self.name}' is called by the worker that holds the session")


def _resource(declared: Declaration) -> type[Session[Any]] | VerifyFunction:
    fields = [(name, Any) if required else (name, Any, None) for name, required in declared.fields.items()]
    task = msgspec.defstruct("DeclaredTask", fields, bases=(Task,), kw_only=True)
    if declared.shape == "verify":

        def verify(task: Task, reply: object) -> Verdict:
            raise RuntimeFault(f"'{declared.name}' is verified by its workers")

        verify.__annotations__["task"] = task
        return verify
    base: Any = Episode if declared.shape == "episode" else Session
    return types.new_class("DeclaredSession", (base[task],))
