"""How a rollout ended, and the record of it that is committed once."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault
from gym_runtime.messages.comparison import Comparison, GroupSpan
from gym_runtime.messages.roles import RoleUse
from gym_runtime.messages.rollout_spec import RolloutSpec


class Completed(msgspec.Struct, tag_field="type", tag="completed", frozen=True, kw_only=True):
    """The agent finished and the verifier judged it."""


class Truncated(msgspec.Struct, tag_field="type", tag="truncated", frozen=True, kw_only=True):
    """A limit stopped the agent (``max_turns``, ``max_output_tokens`` …); the transcript was judged."""

    reason: str


class Failed(msgspec.Struct, tag_field="type", tag="failed", frozen=True, kw_only=True):
    """There is no verdict and so no reward; the fault says why."""

    fault: Fault


class Cancelled(msgspec.Struct, tag_field="type", tag="cancelled", frozen=True, kw_only=True):
    """The run, the group or the rollout was cancelled."""


Outcome = Completed | Truncated | Failed | Cancelled


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout that waits for the comparison of its group has to say to it.

    Attributes:
        features: what its verification returned, as JSON.
        task: the rollout's spec without its row, from which the comparison's is made.
    """

    features: Raw
    task: RolloutSpec


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The committed result of one rollout.

    Attributes:
        row: the result row as it is written to a file: input fields, response, reward, bookkeeping. A
            failed rollout's row has no reward; it has the transcript up to the failure.
        reward: None exactly when no verifier returned one.
        numbers: the row's numeric top-level fields, for metrics without decoding the row.
        roles: what models in roles cost, by role.
        turns, tool_calls: how many model calls and tool calls the counted attempt made.
        duration_s: from the first delivery of this attempt to its end.
        group: the rollouts that it is compared with, if its environment compares.
        waiting: set exactly while the reward is still to come from the comparison of the group.
        comparison: the result, if this is the record of a comparison; its ``rollout_index`` is negative.
    """

    run: str
    task_index: int
    rollout_index: int
    environment: str
    outcome: Outcome
    row: Raw
    attempt: int = 1
    reward: float | None = None
    numbers: dict[str, float] = {}
    roles: dict[str, RoleUse] = {}
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0
    worker: str = ""
    group: GroupSpan | None = None
    waiting: Waiting | None = None
    comparison: Comparison | None = None

    @property
    def rollout_id(self) -> str:
        return f"{self.run}.{self.task_index}.{self.rollout_index}"


encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(RolloutRecord).decode
