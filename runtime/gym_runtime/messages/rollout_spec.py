"""A unit of work on the queue: one rollout of one task, or the comparison of a group of rollouts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw

from gym_runtime.messages.fork import Fork
from gym_runtime.messages.names import Token
from gym_runtime.messages.responses import NULL

Index = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""One of any length would be too long for a subject, and a task that has no subject is delivered for ever."""
LONG_ROW_BYTES = 16 * 1024
"""The input of a longer row travels only where it is needed."""


class GroupSpan(msgspec.Struct, frozen=True):
    """The rollouts of one task that are compared with each other, by their ``rollout_index``.

    Attributes:
        first: the lowest index.
        size: how many there are; their indices follow each other.
    """

    first: int
    size: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that takes part in a comparison; its ``features`` are what its verification returned."""

    rollout_index: int
    features: Raw


def comparison_index(first: int) -> int:
    """The ``rollout_index`` of a comparison: negative, and its own among those of a task.

    Args:
        first: the lowest ``rollout_index`` of its candidates.
    """
    return -1 - first


def is_comparison(rollout_index: int | str) -> bool:
    """Whether an index, or the last token of a rollout's subject, is that of a comparison."""
    return int(rollout_index) < 0


class RolloutSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rollout to run.

    Attributes:
        row: the dataset row, with the run's sampling settings already in its
            ``responses_create_params``.
        agent_ref: what the result row will carry as its ``agent_ref``.
        agent_options: options of the agent, those of the run over those of the environment.
        model: the model pool to ask.
        roles: the model pool that serves each role of the environment.
        role_sampling: how the models in roles sample, over what the environment says.
        timeout_s: how long the rollout may take, in seconds, over all of its attempts; the time counts while
            an attempt runs.
        call_timeout_s: how long one call of an engine may take, in seconds, 0 for no limit; None for one that
            its worker learns.
        max_attempts: how many tries may fail before the rollout counts as failed. A try that ended because a
            worker was lost, or the task was given back, does not count.
        max_turns: model calls per attempt at most; None leaves it to the environment.
        parallel_tools: tool calls of one turn may run concurrently.
        replayable: a lost session may be rebuilt by repeating its calls.
        opens_first: the session is opened before the first model call, because its environment may refuse
            the row if a file is missing.
        durability: ``turn`` keeps a journal, from which another worker can continue; ``result`` does not.
        return_tokens: put token ids and log-probabilities on the row's output items.
        packed_tokens: the client puts them there: the record has them packed.
        names_images: the client understands `RolloutRecord.images`.
        has_row: the client has the row at hand, and understands `RolloutRecord.left_out`.
        max_staleness: how many versions older than the newest, at the end of the rollout, the weights may be
            that sampled any of its tokens; None for no limit.
        skip_verification: the reward of a rollout that is not judged; None for one that is.
        attempt_base: attempts already spent on this rollout in interrupted runs.
        taken_up: an earlier client of this run may have left a journal of this rollout, or its result.
        group: the rollouts that it is compared with, if its environment compares; itself included.
        candidates: the rollouts to compare, if this is not a rollout but a group's comparison; its row is
            then the first candidate's.
        attached: the run's client answers on ``alive.client.<run>``; nothing is worked on while it is gone.
        fork: the turns of another rollout with which this one begins.
        reads_input: the environment gets the input of a long row.
        steps: the environment goes step by step (`Episode`), for agents that play others, too.
    """

    run: Token
    task_index: Index
    rollout_index: Index
    environment: Token
    agent: Token
    row: Raw
    agent_ref: Raw = NULL
    model: Token = "policy"
    roles: dict[str, Token] = {}
    role_sampling: dict[str, dict[str, Any]] = {}
    timeout_s: float = 1800.0
    max_attempts: int = 3
    max_turns: int | None = None
    parallel_tools: bool = False
    replayable: bool = True
    durability: Literal["turn", "result"] = "turn"
    return_tokens: bool = False
    max_staleness: int | None = None
    attempt_base: int = 0
    taken_up: bool = False
    attached: bool = msgspec.field(default=False, name="attended")
    opens_first: bool = False
    group: GroupSpan | None = None
    candidates: list[Candidate] = []
    agent_options: dict[str, Any] = {}
    packed_tokens: bool = False
    names_images: bool = False
    has_row: bool = False
    call_timeout_s: float | None = None
    skip_verification: float | None = None
    fork: Fork | None = None
    reads_input: bool = True
    steps: bool = False

    @property
    def rollout_id(self) -> str:
        return f"{self.run}.{self.task_index}.{self.rollout_index}"

    @property
    def group_id(self) -> str:
        return f"{self.run}.{self.task_index}"


class RolloutIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that identify a rollout, read from a task whose other fields cannot be decoded."""

    run: Token
    task_index: Index
    rollout_index: Index
    environment: str = ""
    attempt_base: int = 0
    group: GroupSpan | msgspec.UnsetType = msgspec.UNSET


encode_spec = msgspec.json.Encoder().encode
decode_spec = msgspec.json.Decoder(RolloutSpec).decode
decode_identity = msgspec.json.Decoder(RolloutIdentity).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def as_taken_up(payload: bytes) -> bytes:
    """An encoded task as one that may have been begun; fields of later versions stay."""
    return msgspec.json.encode({**_decode_fields(payload), "taken_up": True})


def unread_spec(payload: bytes, agent: str) -> RolloutSpec:
    """What identifies a rollout, of a task whose other fields cannot be decoded.

    Raises:
        UNREADABLE: that cannot be decoded either.
    """
    found = msgspec.structs.asdict(decode_identity(payload))
    known = {name: value for name, value in found.items() if value is not msgspec.UNSET}
    return RolloutSpec(**known, agent=agent, row=NULL)
