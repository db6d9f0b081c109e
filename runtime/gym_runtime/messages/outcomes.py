"""How a rollout ended, and the record of it that is committed once."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault, TaskError
from gym_runtime.messages.chat import chat_messages
from gym_runtime.messages.items import Message, encode_item
from gym_runtime.messages.responses import NULL, decode_params
from gym_runtime.messages.roles import RoleUse
from gym_runtime.messages.token_sequences import TokenSequence, token_sequences


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

    @property
    def rollout_id(self) -> str:
        return f"{self.run}.{self.task_index}.{self.rollout_index}"

    def sequences(self) -> list[TokenSequence]:
        """What there is to train on: one sequence per segment of tokens, in order; see `TokenSequence`.

        A rollout that failed before its first model call has none.

        Raises:
            UsageError: it was made without ``return_tokens``; or numpy is not installed.
            TaskError: its row is damaged.
        """
        return token_sequences(self.row, truncated=isinstance(self.outcome, Truncated))

    @property
    def response(self) -> dict[str, Any] | None:
        """The row's ``response`` as plain Python, decoded at each use; None if there is none."""
        return msgspec.json.decode(self._parts().response)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation as Chat Completions messages, converted at each use; see `chat_messages`.

        Raises:
            TaskError: its row is damaged.
        """
        parts = self._parts()
        try:
            params = decode_params(parts.responses_create_params)
            items = params.input_items()
            if params.instructions is not None:
                items.insert(0, encode_item(Message(role="system", content=params.instructions)))
            output = _decode_output(parts.response)
            items += output.output if output is not None else []
            return chat_messages(items)
        except msgspec.DecodeError as error:
            raise TaskError(f"the row's conversation cannot be read: {error}") from error

    def _parts(self) -> _Parts:
        try:
            return _decode_parts(self.row)
        except msgspec.DecodeError as error:
            raise TaskError(f"not a result row: {error}") from error


class _Parts(msgspec.Struct, frozen=True):
    responses_create_params: Raw = Raw(b"{}")
    response: Raw = NULL


class _Output(msgspec.Struct, frozen=True):
    output: list[Raw] = []


_decode_parts = msgspec.json.Decoder(_Parts).decode
_decode_output = msgspec.json.Decoder[_Output | None](_Output | None).decode

encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(RolloutRecord).decode
