"""The blends of NeMo RL's recipes, as ``recipes.toml`` lists them, and what of each runs here.

A part of a blend is a configuration of NeMo Gym. It is here if the agents that its rows name mean an
environment of this installation; so a new environment shows without a change of the list.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec
from gym_runtime.environment import catalogue, requirements
from gym_runtime.errors import UsageError


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    parts: list[str]
    extends: str = ""


class _Listed(msgspec.Struct, forbid_unknown_fields=True):
    configurations: dict[str, list[str]]
    recipes: dict[str, _Recipe]


class PartEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of NeMo Gym in a listing.

    Attributes:
        agents: the agents that its rows name.
        environment: the environment here that all of them mean; empty if there is none.
        runnable: no package and no program is missing. Models in roles and files may be.
        needs: what is missing; else its extra, models in roles, files that are not shipped.
    """

    name: str
    agents: list[str]
    environment: str = ""
    runnable: bool = False
    needs: str = ""


class RecipeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe in a listing. ``source`` is its file in NeMo RL's ``examples/nemo_gym``."""

    name: str
    source: str
    parts: list[PartEntry]


def recipes() -> list[RecipeEntry]:
    """Every recipe, in the order of the list."""
    listed = _listed()
    parts = {name: part(name, agents) for name, agents in listed.configurations.items()}
    return [
        RecipeEntry(name=name, source=one.source, parts=[parts[of] for of in _parts(listed, one)])
        for name, one in listed.recipes.items()
    ]


def _parts(listed: _Listed, recipe: _Recipe) -> list[str]:
    inherited = _parts(listed, listed.recipes[recipe.extends]) if recipe.extends else []
    return [*inherited, *recipe.parts]


@cache
def _listed() -> _Listed:
    table = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text())
    return msgspec.convert(table, _Listed)


def part(name: str, agents: list[str]) -> PartEntry:
    """What is here of a configuration."""
    try:
        (environment,) = {catalogue.resolve_agent_ref(agent) for agent in agents}
    except (UsageError, ValueError):
        return PartEntry(name=name, agents=agents, needs="no environment here")
    try:
        definition, _ = catalogue.definition(environment)
        packs = {pack: catalogue.tool_pack(pack) for pack in definition.tool_packs}
        requirements.require_defined(environment, definition, packs)
    except UsageError as error:
        return PartEntry(name=name, agents=agents, environment=environment, needs=error.message)
    needs = [f"extra {definition.extra}"] if definition.extra else []
    needs += [f"role {one.name}{' (optional)' * one.optional}" for one in definition.declared_roles]
    if definition.assets:
        needs.append(f"files: gym-runtime prepare --assets {environment}")
    return PartEntry(name=name, agents=agents, environment=environment, runnable=True, needs=", ".join(needs))
