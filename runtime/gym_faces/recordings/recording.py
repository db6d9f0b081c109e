"""Recorded rollouts: a line of a file, divided into its model calls.

A line is a result row (this runtime's or NeMo Gym's), whose flat transcript is one call after the other, or a
`CallEntry`, which is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from gym_runtime.adapters import ModelAnswer, Tokens
from gym_runtime.messages import (
    Response,
    decode_response,
    item_tokens,
    pack_ids,
    pack_logprobs,
    recorded_calls,
    user_message,
)
from msgspec import Raw

from gym_faces.recordings.calls_file import CallEntry, decode_entry


class _Params(msgspec.Struct, frozen=True):
    input: str | list[Raw] = []
    instructions: str | None = None

    @property
    def items(self) -> list[Raw]:
        items = [user_message(self.input)] if isinstance(self.input, str) else self.input
        if self.instructions:
            return [Raw(_encode({"role": "system", "content": self.instructions})), *items]
        return items


class _Row(msgspec.Struct, frozen=True):
    """The fields of a result row that a replay reads."""

    responses_create_params: _Params
    response: Raw
    task: int = msgspec.field(name="_ng_task_index", default=0)
    rollout: int = msgspec.field(name="_ng_rollout_index", default=0)


class _Head(msgspec.Struct, frozen=True):
    model_call_id: str | None = None
    response: Raw = Raw()


class RecordedTurn(NamedTuple):
    """A recorded call: the transcript before it, the model's items, and the item that has its tokens."""

    before: list[Raw]
    said: list[Raw]
    tokens: Raw | None = None


class RecordedRollout(NamedTuple):
    """A line: its task and rollout, the beginning of its conversation, its turns, and each turn's answer."""

    task: int
    rollout: int
    opening: list[Raw]
    turns: Sequence[RecordedTurn]
    answer: Callable[[int], ModelAnswer]


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_row = msgspec.json.Decoder(_Row).decode
_decode_params = msgspec.json.Decoder(_Params).decode


def read(line: bytes) -> RecordedRollout:
    """A line; one without an answer has no turns.

    Raises:
        msgspec.DecodeError: the line is neither a row nor a call.
    """
    head = _decode_head(line)
    if head.model_call_id is not None:
        entry = decode_entry(line)
        turns = [RecordedTurn([], entry.output_items)] if entry.error is None else []
        began = opening(entry.responses_create_params)
        return RecordedRollout(*indices(entry.rollout_id), began, turns, partial(_answer_of_entry, entry))
    if not bytes(head.response):
        if b'"responses_create_params"' not in line:
            raise msgspec.ValidationError("it has no 'responses_create_params'")
        return RecordedRollout(0, 0, [], [], _no_answer)  # the rollout failed before its first turn
    row = _decode_row(line)
    response = decode_response(row.response)
    turns = list(_turns(response.output))
    answer = partial(_answer_of_row, response, turns)
    return RecordedRollout(row.task, row.rollout, row.responses_create_params.items, turns, answer)


def _no_answer(turn: int) -> ModelAnswer:
    raise IndexError(turn)


def _answer_of_entry(entry: CallEntry, turn: int) -> ModelAnswer:
    response = Response(
        id=entry.response_id,
        created_at=entry.created_at,
        model=entry.model,
        output=entry.output_items,
        status=entry.status,
        incomplete_details=entry.incomplete_details,
        usage=entry.usage,
    )
    tokens = None if entry.token_item_index is None else _tokens(entry)
    return ModelAnswer(response=Raw(_encode(response)), tokens=tokens)


def _answer_of_row(response: Response, turns: Sequence[RecordedTurn], index: int) -> ModelAnswer:
    """One turn's answer. The last turn's has the response's status and its whole usage."""
    turn, last = turns[index], index == len(turns) - 1
    answer = msgspec.structs.replace(
        response,
        id=response.id if last else f"{response.id}_{index}",
        output=turn.said,
        usage=response.usage if last else None,
        status=response.status if last else "completed",
        incomplete_details=response.incomplete_details if last else None,
    )
    tokens = item_tokens(turn.tokens) if turn.tokens else None
    return ModelAnswer(response=Raw(_encode(answer)), tokens=tokens)


def _turns(output: Sequence[Raw]) -> Iterator[RecordedTurn]:
    """A transcript's model calls."""
    calls = recorded_calls(output)
    before = list(output[: calls[0].start]) if calls else []
    for call in calls:
        yield RecordedTurn(list(before), call.said, call.tokens or None)
        before += [*call.said, *call.after]


def _tokens(found: CallEntry) -> Tokens:
    return Tokens(
        prompt_ids=pack_ids(found.prompt_token_ids),
        generation_ids=pack_ids(found.generation_token_ids),
        log_probs=pack_logprobs(found.generation_log_probs),
        weights=found.weight_versions,
    )


def indices(rollout_id: str) -> tuple[int, int]:
    """Task and rollout of ``<run>.<task>.<rollout>``; zeros for any other id."""
    parts = rollout_id.rsplit(".", 2)
    if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
        return int(parts[1]), int(parts[2])
    return 0, 0


def opening(params: Raw) -> list[Raw]:
    """The beginning of a conversation: the instructions, as a system message, and the input."""
    return _decode_params(params).items
