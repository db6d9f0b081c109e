"""What users have set for a run while it goes on: paused, a limit of its rollouts, other limits.

It is stored under ``runs.<run>.control``, so it outlives every process, and announced by an empty
``cancel.<run>.control``, on which agent workers look again; workers of earlier versions ignore both. From
then on the run has its own queue for each agent, ``task.=.<agent>.<run>.>``: what waits in the agent's
queue is moved there by the workers that get it. So a paused run costs nothing, because nothing is pulled from
its queue, and the broker itself limits how many of its rollouts are in progress.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gym_runtime.errors import UsageError
from gym_runtime.messages.names import Token, token
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.messages.stored_records import MOST_BYTES, Stored

OWN = "="
"""In the place of the agent in a task's subject: the queue of a run. No agent may have this name."""
LIMITS = ("max_attempts", "max_turns", "timeout_s", "call_timeout_s")
"""The fields of a `RolloutSpec` that can be set."""

AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class RunControl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record.

    Attributes:
        paused: nothing of it starts; what is in progress stops at its next turn.
        concurrency: its rollouts in progress at most, for each of its agents; None for no limit.
        max_attempts, max_turns, timeout_s, call_timeout_s: as in `RolloutSpec`, for rollouts that start, or
            go on, from now on; None for what the run was published with.
        share: its weight among runs: agent workers divide their slots among runs that have a queue of their
            own, and all others together, which have the weight 1; None for 1.
        priority: no rollout of a lower priority starts where one of a higher waits; None for 0, which runs
            without their own queue have.
        by, at_s: who set it last and when, as in `gym_runtime.messages.stored_records.Asked`.
    """

    run: Token
    paused: bool = False
    concurrency: AtLeastOne | None = None
    max_attempts: AtLeastOne | None = None
    max_turns: AtLeastOne | None = None
    timeout_s: Seconds | None = None
    call_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] | None = None
    by: str = ""
    at_s: float = 0.0

    def applied(self, task: RolloutSpec) -> RolloutSpec:
        """A rollout with the limits that are set here."""
        limits = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(task, **limits) if limits else task


SETTABLE = {
    "concurrency": "a whole number from 1 to 2147483647",
    "share": "a number above 0, at most a million",
    "priority": "a whole number from -1000 to 1000",
    "max_attempts": "a whole number from 1 to 2147483647",
    "max_turns": "a whole number from 1 to 2147483647",
    "timeout_s": "a number of seconds above 0, at most a billion",
    "call_timeout_s": "a number of seconds, at most a billion; 0 is no limit",
}
"""What users may set, and which values."""

encode_control = msgspec.json.Encoder().encode
decode_control = msgspec.json.Decoder(RunControl).decode
CONTROLS = Stored(decode_control, lambda control: f"{control.run}.control", MOST_BYTES)
"""Reads what is stored under ``runs.<run>.control``."""


def control_subject(run: str) -> str:
    """Where the control of a run is stored."""
    return f"runs.{token(run, 'run')}.control"


def settable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, if users may set all of them.

    Raises:
        UsageError: one has another name.
    """
    for name in settings:
        if name not in SETTABLE:
            raise UsageError(f"'{name}' cannot be set for a run: use one of {', '.join(SETTABLE)}")
    return settings


def changed(control: RunControl, settings: dict[str, Any]) -> RunControl:
    """A control with other settings; None for one is what the run was published with.

    Raises:
        UsageError: a value is wrong.
    """
    fields = msgspec.structs.asdict(control) | settings
    try:
        return msgspec.convert(fields, RunControl)
    except msgspec.ValidationError as error:
        name = str(error).partition("`$.")[2].rstrip("`")
        wrong = f"invalid value '{settings[name]}' for {name}"
        raise UsageError(f"{wrong}; it must be {SETTABLE[name]}; null takes a change back") from error


def own_queue(run: str, agent: str) -> tuple[str, str]:
    """The pattern of a run's own queue for an agent, and the name of its consumer."""
    run, agent = token(run, "run"), token(agent, "agent")
    return f"task.{OWN}.{agent}.{run}.>", f"run-{run}-{agent}"


def own_subject(task: RolloutSpec) -> str:
    """Where a rollout waits in its run's own queue: its own subject, so that it is there once."""
    run, agent = token(task.run, "run"), token(task.agent, "agent")
    return f"task.{OWN}.{agent}.{run}.{task.task_index}.{task.rollout_index}"


def agent_of(subject: str) -> str:
    """The agent for which a task waits under a subject."""
    _, agent, following, *_ = subject.split(".")
    return following if agent == OWN else agent


def is_own(subject: str) -> bool:
    """Whether a task waits in its run's own queue."""
    return subject.startswith(f"task.{OWN}.")
