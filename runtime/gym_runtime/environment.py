"""Environments: a name that ties a resource, an agent, its limits and its data together.

An environment is one module with one global called ``environment``, and one JSONL file of example rows
beside it with the same stem. The module's name is the environment's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from gym_runtime.resource import Resource, Session, VerifyFunction

Domain = Literal[
    "agent",
    "coding",
    "e2e",
    "games",
    "instruction_following",
    "knowledge",
    "long_context",
    "math",
    "other",
    "rlhf",
    "safety",
    "translation",
]


Split = Literal["train", "validation", "example"]
RowGenerator = Callable[..., Iterator[dict[str, Any]]]
"""``generate(size, seed, **settings)``: that many rows, the same ones for the same seed and settings."""


class DatasetSource(msgspec.Struct, frozen=True, kw_only=True):
    """A public file of rows for an environment, JSONL, in a data set repository on the Hugging Face hub.

    Attributes:
        repo_id: ``owner/name``.
        file: its path in the repository.
        revision: a branch, tag or commit; ``prepare`` writes down the commit that it stood for.
        license: of this file.
        name: tells several sources of one split apart, as in ``prepare math_with_judge:stack_overflow``;
            the one without a name is taken unless a run says otherwise.
    """

    repo_id: str
    file: str
    split: Split = "train"
    revision: str = "main"
    license: str
    name: str = ""


def published(
    repo_id: str,
    data_license: str,
    *,
    train: str = "train.jsonl",
    validation: str = "validation.jsonl",
    name: str = "",
) -> tuple[DatasetSource, ...]:
    """The sources of a repository with one file per split; an empty file name for a split that it lacks."""
    files: dict[Split, str] = {"train": train, "validation": validation}
    return tuple(
        DatasetSource(repo_id=repo_id, file=file, split=split, license=data_license, name=name)
        for split, file in files.items()
        if file
    )


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment's module declares.

    Attributes:
        resource: a verify function, or a `Session` (or `Episode`) class.
        description: one line.
        domain: for listings and metrics.
        agent: the agent that runs its rollouts unless a run says otherwise.
        max_turns: model calls per attempt at most; None for no limit of its own.
        timeout_s: from the start of an attempt to its deadline, in seconds.
        parallel_tools: tool calls of one turn may run concurrently on one session.
        replayable: a session that was lost with its worker may be rebuilt by repeating its calls: it is a
            pure function of the task and the calls, and the calls have no effects elsewhere.
        heavy: verifying may take long or hang, so it happens in a process that can be killed.
        verify_timeout_s: how long a heavy verification may take, in seconds.
        data_license: licence of the data it is meant for.
        extra: the extra of the distribution that its imports need, if any.
        datasets: where rows of it are published.
        generate: makes rows, for environments whose rows need no download.
        agent_refs: further names under which datasets refer to it.
        agent_settings: defaults of row fields (`gym_runtime.settings`) for the rows whose ``agent_ref`` names
            an agent that begins with the key, in whole words; the longest key that fits is taken.
        imports: modules that a heavy verification needs and that take long to import: a process has them
            before its first verification's time begins.
        gold_reward: what the perfect rollouts of its example rows score.
        silence_reward: what an empty answer scores; above 0 only where the rule itself says so.
    """

    resource: type[Session[Any]] | VerifyFunction
    description: str
    domain: Domain = "other"
    agent: str = "tool_loop"
    max_turns: int | None = None
    timeout_s: float = 1800.0
    parallel_tools: bool = False
    replayable: bool = True
    heavy: bool = False
    verify_timeout_s: float = 30.0
    data_license: str = ""
    extra: str = ""
    datasets: tuple[DatasetSource, ...] = ()
    generate: RowGenerator | None = None
    agent_refs: tuple[str, ...] = ()
    agent_settings: dict[str, dict[str, Any]] = {}
    imports: tuple[str, ...] = ()
    gold_reward: float = 1.0
    silence_reward: float = 0.0

    @property
    def shape(self) -> str:
        """``verify``, ``session`` or ``episode``."""
        from gym_runtime.resource import Episode

        if not isinstance(self.resource, type):
            return "verify"
        return "episode" if issubclass(self.resource, Episode) else "session"

    def build(self) -> Resource:
        """The resource, ready to open sessions."""
        return Resource(self.resource)


class LoadedEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment with its name and where it came from.

    Attributes:
        settings: defaults of row fields that a run gives; `gym_runtime.settings.filled` applies them.
    """

    name: str
    definition: Environment
    resource: Resource
    source: Path
    settings: dict[str, Any] = {}

    @property
    def examples(self) -> Path:
        """The JSONL of example rows."""
        return self.source.with_suffix(".jsonl")
