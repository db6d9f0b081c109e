"""``task.toml`` of a Harbor task, schema 1.4 and before: what is read of it, and what this runtime refuses.

Unknown keys are ignored, as Harbor ignores them. A key that would change what a rollout means, and that is
not supported here, is named by `refusals`; none of them is dropped.
Source: Harbor 0.26 (`harbor.models.task.config`, Apache-2.0), for names, types and defaults.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from gym_runtime import UsageError

Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 86400)]
Network = Literal["public", "no-network", "allowlist"]
User = str | int | None
MIB = 1 << 20
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ROOT = (None, "root", 0, "0")


class HealthCheck(msgspec.Struct, frozen=True):
    """A command that has to succeed before the agent starts; times in seconds."""

    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3


class EnvironmentPart(msgspec.Struct, frozen=True):
    """``[environment]``, and ``[verifier.environment]``."""

    docker_image: str | None = None
    os: str = "linux"
    memory_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
    storage_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
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
    mcp_servers: list[dict[str, Any]] = []

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


class TaskFile(msgspec.Struct, frozen=True):
    """A ``task.toml``."""

    task: dict[str, Any] = {}
    environment: EnvironmentPart = EnvironmentPart()
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    solution: SolutionPart = SolutionPart()
    steps: list[dict[str, Any]] | None = None
    artifacts: list[str | Artifact] = []

    @property
    def all_artifacts(self) -> list[Artifact]:
        return [Artifact(one) if isinstance(one, str) else one for one in self.artifacts]


def parse(text: str, where: str) -> TaskFile:
    """A task's file.

    Args:
        where: its path, for messages.

    Raises:
        UsageError: it is no TOML, or a key has a wrong value.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), TaskFile)
        for part in filter(None, (found.environment, found.verifier.environment)):
            _ = part.memory_bytes, part.storage_bytes
    except (msgspec.ValidationError, RecursionError, ValueError, OverflowError) as error:
        raise UsageError(f"{where}: {error}") from error
    verifier = found.verifier
    if verifier.environment_mode == "shared" and verifier.environment is not None:
        raise UsageError(f"{where}: a shared verifier has no [verifier.environment]")
    for artifact in found.all_artifacts:
        if not artifact.source.strip() or ".." in PurePosixPath(artifact.source).parts:
            raise UsageError(f"{where}: the artifact '{artifact.source}' must be a path without '..'")
    for one in (found.environment.env, verifier.env, found.solution.env):
        for name in one:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"{where}: '{name}' cannot be the name of a variable")
    return found


def refusals(found: TaskFile) -> list[str]:
    """What a task asks for and does not get here, each in words with what would help."""
    environment, verifier = found.environment, found.verifier
    boxes = [environment, *filter(None, (verifier.environment,))]
    users = [found.agent.user, verifier.user, *(hook.user for hook in verifier.collect)]
    networks = [found.agent.network_mode, verifier.network_mode, *(box.network for box in boxes)]
    services = [hook.service for hook in verifier.collect] + [a.service for a in found.all_artifacts]
    reasons = {
        "it has [[steps]]; only tasks of one step run here": bool(found.steps),
        "its [environment].os is not linux": any(box.os.lower() != "linux" for box in boxes),
        "it needs a GPU or TPU": any(box.gpus or box.tpu for box in boxes),
        "it has [[environment.mcp_servers]]": any(box.mcp_servers for box in boxes),
        "it has skills_dir": any(box.skills_dir for box in boxes),
        "its network_mode is allowlist; a box has no network": "allowlist" in networks,
        "it has another user than root": any(user not in _ROOT for user in users),
        "it names another service than main": any(name not in (None, "main") for name in services),
    }
    return [reason for reason, holds in reasons.items() if holds]


def asks_for_network(found: TaskFile) -> bool:
    """Whether Harbor would give its agent or its tests a network."""
    default = found.environment.network
    agent = found.agent.network_mode or default
    separate = found.verifier.environment
    verifier = found.verifier.network_mode or (separate.network if separate else default)
    return "public" in (agent, verifier)


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
        if mib not in (None, said):
            raise ValueError(f"'{legacy}' and {mib} MB are different sizes")
        mib = said
    return None if mib is None else mib * MIB
