"""What a listing says of an environment, an agent, a model provider or a tool pack."""

from __future__ import annotations

import inspect
import os
from typing import Any

import msgspec

from gym_runtime.environment import catalogue, requirements
from gym_runtime.environment.tools import tools_of
from gym_runtime.errors import UsageError


class EnvironmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An environment in a listing. ``needs`` is what must be done before it runs; empty if nothing."""

    name: str
    domain: str = ""
    shape: str = ""
    agent: str = ""
    runnable: bool = True
    needs: str = ""
    extra: str = ""
    data_license: str = ""
    description: str = ""
    source: str = ""


class ModuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent or a model provider in a listing. ``key_variable`` is empty where no key is needed."""

    name: str
    runnable: bool = True
    needs: str = ""
    description: str = ""
    key_variable: str = ""
    key_set: bool = False


class PackEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A tool pack in a listing; its tools as rows offer them in ``responses_create_params.tools``."""

    name: str
    runnable: bool = True
    needs: str = ""
    extra: str = ""
    data_license: str = ""
    description: str = ""
    tools: list[dict[str, Any]] = []


def describe_environment(name: str) -> EnvironmentEntry:
    """An environment's entry, also if it cannot be imported."""
    try:
        definition, source = catalogue.definition(name)
        packs = {pack: catalogue.tool_pack(pack) for pack in definition.tool_packs}
    except UsageError as error:
        return EnvironmentEntry(name=name, runnable=False, needs=_remedy(error))
    needs = ""
    try:
        requirements.require_defined(name, definition, packs)
    except UsageError as error:
        needs = _remedy(error)
    return EnvironmentEntry(
        name=name,
        domain=definition.domain,
        shape=definition.shape,
        agent=definition.agent,
        runnable=not needs,
        needs=needs,
        extra=definition.extra,
        data_license=definition.data_license
        or ", ".join(dict.fromkeys(d.license for d in definition.datasets)),
        description=definition.description,
        source=str(source),
    )


def describe_module(kind: catalogue.Kind, name: str) -> ModuleEntry:
    """An agent's or a model provider's entry, also if it cannot be imported."""
    try:
        module = catalogue.load(kind, name)
    except UsageError as error:
        return ModuleEntry(name=name, runnable=False, needs=_remedy(error))
    key_variable = getattr(module, "key_variable", None)
    about = getattr(module, "about", None)
    variable = key_variable(name) if key_variable else ""
    return ModuleEntry(
        name=name,
        description=about(name) if about else (inspect.getdoc(module) or "").partition("\n")[0],
        key_variable=variable,
        key_set=bool(os.environ.get(variable)),
    )


def describe_pack(name: str) -> PackEntry:
    """A tool pack's entry, also if its packages are missing."""
    pack, needs = catalogue.tool_pack(name), ""
    try:
        requirements.require_pack(name, pack)
    except UsageError as error:
        needs = _remedy(error)
    module = inspect.getmodule(pack)
    return PackEntry(
        name=name,
        runnable=not needs,
        needs=needs,
        extra=pack.extra,
        data_license=pack.data_license,
        description=(inspect.getdoc(module) or "").partition("\n")[0],
        tools=[tool.definition() for tool in tools_of(pack).values()],
    )


def _remedy(error: UsageError) -> str:
    """The command that installs what is missing, or else all that is known."""
    _, found, command = error.message.partition(" not installed: ")
    return command if found else error.message
