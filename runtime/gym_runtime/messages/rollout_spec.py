"""A unit of work on the queue: one rollout of one task."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from gym_runtime.messages.names import Token
from gym_runtime.messages.responses import NULL


class RolloutSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rollout to be made.

    Attributes:
        row: the dataset row, with the run's sampling settings already in its
            ``responses_create_params``.
        agent_ref: what the result row will carry as its ``agent_ref``.
        model: the model pool to ask.
        roles: the model pool that serves each role of the environment.
        timeout_s: from the start of an attempt to its deadline, in seconds.
        max_attempts: how often the rollout may be tried before it counts as failed.
        max_turns: model calls per attempt at most; None leaves it to the environment.
        parallel_tools: tool calls of one turn may run concurrently.
        replayable: a lost session may be rebuilt by repeating its calls.
        durability: ``turn`` keeps a journal, from which another worker goes on; ``result`` does not.
        return_tokens: put token ids and log-probabilities on the row's output items.
        max_staleness: how many versions the weights that sampled any token may lie behind the newest at
            the end of the rollout; None for any number.
        attempt_base: attempts already spent on this rollout in interrupted runs.
        attached: the run's client answers on ``client.<run>``; nothing is worked on while it is gone.
    """

    run: Token
    task_index: int
    rollout_index: int
    environment: Token
    agent: Token
    row: Raw
    agent_ref: Raw = NULL
    model: Token = "policy"
    roles: dict[str, Token] = {}
    timeout_s: float = 1800.0
    max_attempts: int = 3
    max_turns: int | None = None
    parallel_tools: bool = False
    replayable: bool = True
    durability: Literal["turn", "result"] = "turn"
    return_tokens: bool = False
    max_staleness: int | None = None
    attempt_base: int = 0
    attached: bool = msgspec.field(default=False, name="attended")

    @property
    def rollout_id(self) -> str:
        return f"{self.run}.{self.task_index}.{self.rollout_index}"

    @property
    def group_id(self) -> str:
        return f"{self.run}.{self.task_index}"


class RolloutIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollout a task is, of one that cannot be read otherwise."""

    run: Token
    task_index: int
    rollout_index: int
    environment: str = ""
    attempt_base: int = 0


encode_spec = msgspec.json.Encoder().encode
decode_spec = msgspec.json.Decoder(RolloutSpec).decode
decode_identity = msgspec.json.Decoder(RolloutIdentity).decode
