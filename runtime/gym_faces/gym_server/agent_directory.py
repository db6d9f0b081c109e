"""What clients read first: the agents and resources servers, and their addresses.

NeMo Gym's head server answers ``/global_config_dict_yaml`` with a text in JSON that holds YAML. Its clients
find an agent's address in the block of the agent's name; from 0.6 on they look for an environment server that
names the agent, and want exactly one. A block without ``entrypoint`` is external: nothing is started for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from gym_runtime.environment import LoadedEnvironment

Blocks = dict[str, dict[str, dict[str, dict[str, Any]]]]
_encode = msgspec.json.Encoder().encode


def agent_names(environment: LoadedEnvironment) -> list[str]:
    """The agents under which datasets know an environment."""
    definition = environment.definition
    return list(
        dict.fromkeys((f"{environment.name}_simple_agent", *definition.agent_refs, *definition.agents))
    )


def blocks(environments: Iterable[LoadedEnvironment], host: str, port: int) -> Blocks:
    """The configuration of external servers that are all at one address, by their instances' names."""
    found: Blocks = {}
    address = {"host": host, "port": port}
    for environment in environments:
        domain = environment.definition.domain
        found[environment.name] = {"resources_servers": {environment.name: {**address, "domain": domain}}}
        for agent in agent_names(environment):
            ref = {"type": "responses_api_agents", "name": agent}
            found[agent] = {"responses_api_agents": {"simple_agent": address}}
            found[f"{agent}_environment"] = {
                "environment_servers": {"legacy_agent": {**address, "agent_server": ref}}
            }
    return found


def head_answer(environments: Iterable[LoadedEnvironment], host: str, port: int) -> bytes:
    """The body of ``/global_config_dict_yaml``: JSON is YAML, and the text of it is a JSON string."""
    config = {"head_server": {"host": host, "port": port}, **blocks(environments, host, port)}
    return _encode(_encode(config).decode())


def agents_yaml(environments: Iterable[LoadedEnvironment], host: str, port: int) -> str:
    """The agents as a file for NeMo Gym's ``config_paths``."""
    lines = ["# Agents that gym-runtime serves: without an entrypoint, NeMo Gym starts nothing for them."]
    for name, block in blocks(environments, host, port).items():
        ((kind, servers),) = block.items()
        ((server, fields),) = servers.items()
        if kind != "resources_servers":
            one_line = msgspec.json.format(_encode(fields), indent=0).decode()  # JSON is YAML
            lines += [f"{name}:", f"  {kind}:", f"    {server}: {one_line}"]
    return "\n".join(lines) + "\n"
