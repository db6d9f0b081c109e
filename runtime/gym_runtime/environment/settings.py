"""Settings of environments: defaults of row fields, from a run or from the name of an agent.

What NeMo Gym keeps in a server's configuration (thresholds, modes of grading) is a field of the row here. A
setting is used for rows in which the field is missing or null: the row has priority over the run's settings,
and these over the defaults that the environment declares for the agent that a row names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import AgentChoice, LoadedEnvironment, fitting, harness
from gym_runtime.environment.roles import create_params
from gym_runtime.errors import UsageError
from gym_runtime.messages.choices import choices
from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_settings import in_words

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def require_known(settings: Iterable[str], environments: Iterable[LoadedEnvironment]) -> None:
    """Refuse settings that no environment has.

    Raises:
        UsageError: a setting is unknown; with the nearest name.
    """
    loaded = list(environments)
    known = sorted({name for environment in loaded for name in environment.row_fields})
    for name in settings:
        if name not in known:
            whose = ", ".join(sorted(environment.name for environment in loaded))
            raise UsageError(f"there is no setting '{name}' of {whose}{catalogue.unknown(name, known)}")


def check_role_sampling(sampling: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a run's settings for the sampling of roles if they do not fit.

    Raises:
        UsageError: there is no such setting, or its value has a wrong type.
    """
    for role, said in sampling.items():
        known = list(CreateParams.__struct_encode_fields__)
        for name in said:
            if name not in known:
                raise UsageError(
                    f"role_sampling of '{role}': there is no field '{name}' of responses_create_params"
                    f"{catalogue.suggest(name, known)}"
                )
        try:
            create_params(_encode(said))
        except msgspec.ValidationError as error:
            raise UsageError(f"role_sampling of '{role}': {in_words(str(error))}") from error


def agent_for(
    environment: LoadedEnvironment, ref: str, agent: str | None, options: Mapping[str, Any]
) -> AgentChoice:
    """The agent of a row, by the name in its ``agent_ref`` and by what its run says.

    Raises:
        UsageError: as `require_harnesses` and `checked_agent`.
    """
    chosen = environment.definition.agent_of(ref)
    if agent is None:
        require_harnesses([chosen.name] if harness(ref) else ())
    return checked_agent(chosen.overridden(agent, options))


def require_harnesses(agents: Iterable[str]) -> None:
    """Refuse rows for a harness that no agent here is named after, instead of running another agent silently.

    Raises:
        UsageError: there is no such agent; with the remedy.
    """
    for name in agents:
        if not catalogue.is_known("agents", name):  # never a file, because a row gives the name
            raise UsageError(
                f"rows ask for the harness '{name}' in their agent_ref, and there is no agent '{name}'; run "
                f"them with yours, --agent {name}.py (docs/how-to/black-box-agents.md), or with another, "
                "such as --agent tool_loop"
            )


def checked_agent(choice: AgentChoice) -> AgentChoice:
    """The choice, if the agent has such options. Of an agent that only its workers know, they find out.

    Raises:
        UsageError: there is no such option, with the nearest one; or its value has a wrong type.
    """
    agent, options = choice.name, choice.options
    if not options or not catalogue.exists("agents", agent):
        return choice
    # An agent that derives from another one has that one's options, unless its module has its own.
    modules = (vars(sys.modules[one.__module__]) for one in catalogue.load_class("agents", agent).__mro__)
    kind = next((module["Options"] for module in modules if "Options" in module), None)
    known = sorted(kind.__struct_fields__) if isinstance(kind, msgspec.StructMeta) else []
    for name in options:
        if name not in known:
            raise UsageError(f"agent '{agent}' has no option '{name}'{catalogue.unknown(name, known)}")
    try:
        msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        said = f"{in_words(str(error))}{choices(error, kind)}"
        raise UsageError(f"options of agent '{agent}': {said}") from error
    return choice


def filled(environment: LoadedEnvironment, row: bytes, agent_ref: str | None) -> bytes:
    """The row, with settings in place of missing fields; the same bytes if no field is missing.

    Raises:
        msgspec.DecodeError: the row is not a JSON object.
    """
    of_agent = fitting(environment.definition.agent_settings, agent_ref or "") or {}
    settings = {**of_agent, **environment.settings}
    if not settings:
        return row
    fields = _decode_fields(row)
    missing = {name: value for name, value in settings.items() if bytes(fields.get(name, b"null")) == b"null"}
    return _encode({**fields, **missing}) if missing else row
