"""What an environment declares, as the workers that serve it tell a client that does not have its module."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw


class DeclaredRole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model that the environment asks besides the policy."""

    name: str
    optional: bool = False


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An environment's declaration, as far as making rollouts of rows needs it.

    Attributes:
        shape: ``verify``, ``session`` or ``episode``.
        fields: the fields of its rows besides ``responses_create_params``; True for those that are required.
        tools: as function tools of the Responses API.
        assets: the names of the files that its rows may need.
        settings: defaults of row fields, by the beginning of an agent's name.
        compares: it compares the rollouts of a row.
        agent_options: of its agent.
        agents: other agents and their options, by the beginning of the name in a row's ``agent_ref``.
        opens_first: a rollout opens its session before the first model call.
        repeats: rollouts per row where the run does not say.
    """

    name: str
    agent: str
    shape: str
    max_turns: int | None = None
    timeout_s: float = 1800.0
    parallel_tools: bool = False
    replayable: bool = True
    roles: list[DeclaredRole] = []
    fields: dict[str, bool] = {}
    tools: list[Raw] = []
    assets: list[str] = []
    agent_refs: list[str] = []
    settings: dict[str, dict[str, Any]] = {}
    compares: bool = False
    opens_first: bool = False
    repeats: int = 1
    agent_options: dict[str, Any] = {}
    agents: dict[str, tuple[str, dict[str, Any]]] = {}


decode_declaration = msgspec.json.Decoder(Declaration).decode
