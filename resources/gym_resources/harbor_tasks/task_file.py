"""``task.toml`` of a Harbor task, schema 1.4 and before: what is read of it, and what this runtime refuses.

Unknown keys are ignored, as Harbor ignores them. A key that would change what a rollout means, and that is
not supported here, is named by `refusals`; none of them is dropped.
Source: Harbor 0.26 (`harbor.models.task.config`, Apache-2.0), for names, types and defaults.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import UsageError
from gym_sandbox.image_references import is_reference

MIB = 1 << 20
MAX_MIB = 1 << 30  # a pebibyte
Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)]
Mib = Annotated[int, msgspec.Meta(gt=0, le=MAX_MIB)]
Network = Literal["public", "no-network", "allowlist"]
User = str | int | None
MAX_CHARS, MAX_DOTS = 128 << 10, 500
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[\w-][\w.-]*")
_ROOT = (None, "root", 0, "0")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class HealthCheck(msgspec.Struct, frozen=True):
    """A command that has to succeed before the agent starts; times in seconds."""

    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3


class McpServerPart(msgspec.Struct, frozen=True):
    """``[[environment.mcp_servers]]``."""

    name: str
    transport: Literal["sse", "streamable-http", "http", "stdio"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}


class EnvironmentPart(msgspec.Struct, frozen=True):
    """``[environment]``, and ``[verifier.environment]``."""

    docker_image: str | None = None
    os: str = "linux"
    build_timeout_sec: Seconds = 600.0
    cpus: Annotated[float, msgspec.Meta(gt=0, le=4096)] | None = None
    memory_mb: Mib | None = None
    storage_mb: Mib | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    network_mode: Network | None = None
    allow_internet: bool | None = None
    workdir: str | None = None
    skills_dir: str | None = None
    env: dict[str, str] = {}
    healthcheck: HealthCheck | None = None
    mcp_servers: list[McpServerPart] = []

    @property
    def network(self) -> Network:
        """What it may reach; older files say ``allow_internet``."""
        if self.network_mode is None and self.allow_internet is not None:
            return "public" if self.allow_internet else "no-network"
        return self.network_mode or "public"

    @property
    def memory_bytes(self) -> int | None:
        return _bytes(self.memory_mb, self.memory)

    @property
    def storage_bytes(self) -> int | None:
        return _bytes(self.storage_mb, self.storage)


class AgentPart(msgspec.Struct, frozen=True):
    timeout_sec: Seconds | None = None
    user: User = None
    network_mode: Network | None = None


class Collect(msgspec.Struct, frozen=True):
    """A command in the agent's box after the agent has ended."""

    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User = None


class VerifierPart(msgspec.Struct, frozen=True):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentPart | None = None
    collect: list[Collect] = []
    network_mode: Network | None = None

    @property
    def separate(self) -> bool:
        """The tests get the declared artifacts only, and not the agent's box."""
        return self.environment_mode == "separate" or self.environment is not None


class SolutionPart(msgspec.Struct, frozen=True):
    env: dict[str, str] = {}


class Artifact(msgspec.Struct, frozen=True):
    """A file or folder of the agent's box that the tests get."""

    source: str
    service: str | None = None
    exclude: list[str] = []


class StepPart(msgspec.Struct, frozen=True):
    """One of ``[[steps]]``; a task without any is one step without a name."""

    name: str = ""
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthCheck | None = None
    artifacts: list[str | Artifact] = []

    @property
    def wanted(self) -> dict[str, float]:
        """What rewards have to reach before the step after it may begin."""
        least = self.min_reward
        return least if isinstance(least, dict) else {} if least is None else {"reward": least}

    def passed(self, rewards: Mapping[str, float]) -> bool:
        """Whether the step after it may begin."""
        return all(rewards.get(name, -math.inf) >= value for name, value in self.wanted.items())


class TaskFile(msgspec.Struct, frozen=True):
    """A ``task.toml``."""

    task: dict[str, Any] = {}
    environment: EnvironmentPart = EnvironmentPart()
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    solution: SolutionPart = SolutionPart()
    steps: list[StepPart] | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[str | Artifact] = []

    @property
    def all_steps(self) -> list[StepPart]:
        """Its steps; at least one. Limits, users and modes that a step leaves open are the task's."""
        if not self.steps:
            return [StepPart(agent=self.agent, verifier=self.verifier)]
        return [self._completed(step) for step in self.steps]

    def artifacts_of(self, step: StepPart) -> list[Artifact]:
        return [Artifact(one) if isinstance(one, str) else one for one in [*self.artifacts, *step.artifacts]]

    def _completed(self, step: StepPart) -> StepPart:
        own, verifier = step.verifier, self.verifier
        chosen = own if own.environment_mode or own.environment else verifier
        merged = msgspec.structs.replace(
            own,
            env={**verifier.env, **own.env},
            user=verifier.user if own.user is None else own.user,
            collect=[*verifier.collect, *own.collect],
            environment_mode=chosen.environment_mode,
            environment=own.environment or (verifier.environment if chosen.separate else None),
        )
        agent = msgspec.structs.replace(
            step.agent,
            timeout_sec=step.agent.timeout_sec or self.agent.timeout_sec,
            user=self.agent.user if step.agent.user is None else step.agent.user,
        )
        return msgspec.structs.replace(step, agent=agent, verifier=merged)


def parse(text: str, where: str) -> TaskFile:
    """A task's file.

    Args:
        where: its path, for messages.

    Raises:
        UsageError: it is no TOML, or a key has a wrong value.
    """
    # For a key of many parts `tomllib` takes time with the square of their number.
    if len(text) > MAX_CHARS or any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise UsageError(
            f"{where} has more than {MAX_CHARS >> 10} KiB, or a line of more than {MAX_DOTS} dots"
        )
    try:
        found = msgspec.convert(tomllib.loads(text), TaskFile)
        for part in boxes(found):
            _ = part.memory_bytes, part.storage_bytes
    except (msgspec.ValidationError, RecursionError, ValueError, OverflowError) as error:
        raise UsageError(f"{where}: {error}") from error
    for image in (box.docker_image for box in boxes(found) if box.docker_image):
        if not is_reference(image):
            raise UsageError(
                f"{where}: docker_image {image[:200]!r} is no image of a registry, such as python:3.12"
            )
    names = [step.name.casefold() for step in found.steps or ()]
    if len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise UsageError(f"{where}: [[steps]] need names of letters, digits and -_. that differ")
    for step in found.steps or ():
        if wrong := [value for value in step.wanted.values() if not math.isfinite(value)]:
            raise UsageError(f"{where}: min_reward of step '{step.name}' is {wrong[0]}, and no finite number")
    verifiers = [found.verifier, *(step.verifier for step in found.steps or ())]
    if any(one.environment_mode == "shared" and one.environment is not None for one in verifiers):
        raise UsageError(f"{where}: a shared verifier has no [verifier.environment]")
    for artifact in (one for step in found.all_steps for one in found.artifacts_of(step)):
        if not artifact.source.strip() or ".." in PurePosixPath(artifact.source).parts:
            raise UsageError(f"{where}: the artifact '{artifact.source}' must be a path without '..'")
    for server in (one for box in boxes(found) for one in box.mcp_servers):
        needed = "command" if server.transport == "stdio" else "url"
        if not getattr(server, needed) or (needed == "command" and server.headers):
            raise UsageError(f"{where}: the MCP server '{server.name}' needs {needed} for {server.transport}")
    given = [*(box.env for box in boxes(found)), *(one.env for one in verifiers), found.solution.env]
    for name in (name for variables in given for name in variables):
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{where}: '{name}' cannot be the name of a variable")
    return found


def boxes(found: TaskFile) -> list[EnvironmentPart]:
    """Its environment, and those of its verifiers."""
    verifiers = [found.verifier, *(step.verifier for step in found.steps or ())]
    return [found.environment, *(one.environment for one in verifiers if one.environment)]


def refusals(found: TaskFile, *, plain: bool, network: bool = False) -> list[str]:
    """What a task asks for and does not get here, each in words with what would help.

    Args:
        plain: its boxes have no images.
        network: they get the network that it asks for.
    """
    steps, parts = found.all_steps, boxes(found)
    hooks = [hook for step in steps for hook in step.verifier.collect]
    users = [user for step in steps for user in (step.agent.user, step.verifier.user)]
    users += [hook.user for hook in hooks]
    networks = {mode for step in steps for mode in (step.agent.network_mode, step.verifier.network_mode)}
    networks |= {found.agent.network_mode, *(part.network for part in parts)}
    artifacts = [artifact for step in steps for artifact in found.artifacts_of(step)]
    servers = found.environment.mcp_servers
    reasons = {
        "its [environment].os is not linux": any(box.os.lower() != "linux" for box in parts),
        "it needs a GPU or TPU": any(box.gpus or box.tpu for box in parts),
        "an MCP server of it is no program (transport stdio): only these run, in its box": any(
            server.transport != "stdio" for server in servers
        ),
        "the names of its MCP servers are not words that differ": len({one.name for one in servers})
        < len(servers)
        or not all(_NAME.fullmatch(one.name) for one in servers),
        "its verifier has MCP servers or skills": any(box.mcp_servers or box.skills_dir for box in parts[1:]),
        "its network_mode is allowlist; a box has all of a network or none, and without ?network=task none": (
            network and "allowlist" in networks
        ),
        "it has another user than root, which needs an image": plain
        and any(user not in _ROOT for user in users),
        "the name of a user is no word": not all(
            user is None or _USER.fullmatch(str(user)) for user in users
        ),
        "it names another service than main": any(
            one.service not in (None, "main") for one in (*hooks, *artifacts)
        ),
    }
    return [reason for reason, holds in reasons.items() if holds]


def agent_network(found: TaskFile, step: StepPart) -> Network:
    """What Harbor would let the agent of a step reach."""
    return step.agent.network_mode or found.agent.network_mode or found.environment.network


def verifier_network(found: TaskFile, step: StepPart) -> Network:
    """What Harbor would let the tests of a step reach."""
    own = step.verifier.environment
    default = own.network if own else found.environment.network
    return step.verifier.network_mode or found.verifier.network_mode or default


def networks(found: TaskFile) -> set[Network]:
    """What Harbor would let its agent and its tests reach."""
    return {one(found, step) for step in found.all_steps for one in (agent_network, verifier_network)}


def resolved(variables: dict[str, str], known: dict[str, str], where: str) -> dict[str, str]:
    """Variables with their templates, such as ``${KEY:-none}``, replaced.

    Args:
        known: the variables of this machine that the user lets tasks read.

    Raises:
        UsageError: a template has no default, and its variable is not among the known ones.
    """
    values: dict[str, str] = {}
    for name, value in variables.items():
        template = _TEMPLATE.fullmatch(value)
        if template is None:
            values[name] = value
        elif template[1] in known:
            values[name] = known[template[1]]
        elif template[0].find(":-") > 0:
            values[name] = template[2]
        else:
            raise UsageError(
                f"{where}: {name} needs the variable {template[1]} of this machine: set it, and add "
                f"?variables={template[1]}"
            )
    return values


def _bytes(mib: int | None, legacy: str | None) -> int | None:
    if legacy is not None:
        text = legacy.strip().upper()
        if text[-1:] not in _UNITS:
            raise ValueError(f"'{legacy}' is no size such as 2G or 512M")
        said = int(float(text[:-1]) * _UNITS[text[-1]])
        if not 0 < said <= MAX_MIB:
            raise ValueError(f"'{legacy}' is no size above 0 and up to {MAX_MIB >> 20} TiB")
        if mib not in (None, said):
            raise ValueError(f"'{legacy}' and {mib} MB are different sizes")
        mib = said
    return None if mib is None else mib * MIB
