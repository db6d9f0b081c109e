"""Every environment: its rules, its declaration, and the fields of its rows. One page for each domain."""

from __future__ import annotations

import inspect
import json

import error_rates
import msgspec
from docstrings import fields_table, one_line, table, tidy
from gym_runtime.environment import catalogue
from gym_runtime.environment.environment import LoadedEnvironment
from gym_runtime.environment.shapes import Task

INTRODUCTION = """# Environments

`gym-runtime ls environments` lists these. A row has `responses_create_params` besides the fields named here;
all other fields are kept and stand in the result row. Fields without a default are required. The
[tutorials](../tutorials/first-environment.md) show how to write one.
"""


def pages() -> dict[str, str]:
    """The overview, and a page for each domain, by their names in docs/reference."""
    domains: dict[str, list[LoadedEnvironment]] = {}
    for name in catalogue.names("environments"):
        one = catalogue.environment(name)
        domains.setdefault(one.definition.domain, []).append(one)
    overview = [INTRODUCTION]
    made: dict[str, str] = {}
    for domain, environments in sorted(domains.items()):
        title = "RLHF" if domain == "rlhf" else domain.replace("_", " ").capitalize()
        address = f"environments/{domain}.md"
        rows = [
            [f"[`{one.name}`]({address}#{one.name})", one.definition.shape, one.definition.description]
            for one in environments
        ]
        overview += [f"## {title}", table(["name", "shape", "what it is"], rows)]
        made[address] = "\n\n".join(
            [f"# {title}", "[All environments](../environments.md)", *map(_section, environments)]
        )
    return {"environments.md": "\n\n".join(overview), **made}


def _section(one: LoadedEnvironment) -> str:
    definition = one.definition
    roles = getattr(definition, "roles", ())
    facts = {
        "run by the agent": f"`{definition.agent}`",
        "with the options": ", ".join(
            f"`{name}={json.dumps(value)}`" for name, value in definition.agent_options.items()
        ),
        "rows may name": ", ".join(f"`{ref}` (`{choice.name}`)" for ref, choice in definition.agents.items()),
        "how the model samples for rows that name": ", ".join(
            f"`{ref}`: `{json.dumps(said)}`" for ref, said in definition.agent_sampling.items()
        ),
        "turns at most": f"{definition.max_turns or ''}",
        "time limit": f"{definition.timeout_s:g} s",
        "rollouts of a row": f"{definition.repeats}" if definition.repeats > 1 else "",
        "install": f"`pip install 'gym-runtime[{definition.extra}]'`, an [extra](../installation.md#extras)"
        if definition.extra
        else "",
        "verified in a process of its own": f"for {definition.verify_timeout_s:g} s of processor time at most"
        if definition.isolated
        else "",
        "asks besides the policy": ", ".join(f"`{getattr(role, 'name', role)}`" for role in roles),
        "rewards": "come from comparing the rollouts of a row with each other" if definition.compare else "",
        "its verifier": error_rates.sentence(one.name, one.source.parent),
        "licence of the data": definition.data_license,
        "also known as": ", ".join(f"`{name}`" for name in definition.agent_refs),
        "files that are not shipped": ", ".join(f"`{asset.name}`" for asset in definition.assets),
        "makes rows itself": "`gym-runtime prepare --source generate`" if definition.generate else "",
    }
    rows = [[name, value] for name, value in facts.items() if value]
    data = table(
        ["split", "data set", "file", "licence"],
        [
            [source.split, f"`{source.origin}`", f"`{source.file}`", source.license]
            for source in definition.datasets
        ],
    )
    tools = table(
        ["tool", "arguments", "what it does"],
        [
            [
                f"`{tool.name}`",
                ", ".join(f"`{name}`" for name in tool.definition()["parameters"]["properties"]),
                one_line(tool.definition()["description"]),
            ]
            for tool in one.resource.tools.values()
        ],
    )
    parts = [
        f"## {one.name}",
        tidy(inspect.cleandoc(catalogue.load("environments", one.name).__doc__ or definition.description)),
        table(["field", "value"], rows),
        _row(one.resource.task_type),
        tools,
        data,
    ]
    return "\n\n".join(filter(None, parts))


def _row(task: type[Task]) -> str:
    if not issubclass(task, msgspec.Struct):
        return ""
    fields = fields_table(task).splitlines()
    kept = [line for line in fields if not line.startswith("| `responses_create_params`")]
    return "\n".join(kept) if len(kept) > 2 else ""
