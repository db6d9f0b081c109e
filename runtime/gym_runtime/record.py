"""From a finished rollout to the row that stands in a file, with NeMo Gym's field names.

The row is the dataset's own fields, ``responses_create_params`` and ``response`` with every field,
``reward`` and what the verifier added, ``agent_ref``, ``_ng_task_index`` and ``_ng_rollout_index``, and
under ``_gym`` what only this runtime knows. Big parts are never decoded, only put together.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gym_runtime.messages.calls import Tokens
from gym_runtime.messages.outcomes import Outcome, RolloutRecord
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.tasks import RolloutTask
from gym_runtime.rollout import Rollout
from gym_runtime.verdict import Verdict

_OWN_FIELDS = {
    "responses_create_params",
    "response",
    "reward",
    "reward_components",
    "agent_ref",
    "_ng_task_index",
    "_ng_rollout_index",
    "_gym",
}
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def make_record(
    task: RolloutTask,
    outcome: Outcome,
    *,
    attempt: int,
    rollout: Rollout | None,
    verdict: Verdict | None,
    duration_s: float,
    worker: str,
) -> RolloutRecord:
    """The record of one rollout; without a verdict its row has no reward."""
    row_fields = _row_fields(task.row)
    row: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    if rollout is not None:
        response = rollout.response()
        row["responses_create_params"] = rollout.params
        row["response"] = msgspec.structs.replace(response, output=_with_tokens(rollout))
        usage = rollout.usage
        numbers = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
    elif "responses_create_params" in row_fields:
        row["responses_create_params"] = row_fields["responses_create_params"]
    for name, value in row_fields.items():
        if name not in _OWN_FIELDS:
            row[name] = value
            number = _number(value)
            if number is not None:
                numbers[name] = number
    if verdict is not None:
        row["reward"] = verdict.reward
        numbers["reward"] = verdict.reward
        row.update(verdict.fields)
        numbers |= _numbers({**verdict.components, **verdict.fields})
        if verdict.components:
            row["reward_components"] = verdict.components
    row["agent_ref"] = {"name": task.environment} if task.agent_ref is NULL else task.agent_ref
    row["_ng_task_index"] = task.task_index
    row["_ng_rollout_index"] = task.rollout_index
    row["_gym"] = {
        "rollout_id": task.rollout_id,
        "attempt": attempt,
        "outcome": outcome,
        "turns": rollout.turns if rollout else 0,
        "tool_calls": rollout.tool_calls if rollout else 0,
        "duration_s": round(duration_s, 4),
    }
    return RolloutRecord(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        environment=task.environment,
        outcome=outcome,
        row=Raw(_encode(row)),
        attempt=attempt,
        reward=None if verdict is None else verdict.reward,
        numbers=numbers,
        turns=rollout.turns if rollout else 0,
        tool_calls=rollout.tool_calls if rollout else 0,
        duration_s=duration_s,
        worker=worker,
    )


def _row_fields(row: Raw) -> dict[str, Raw]:
    try:
        return _fields(row)
    except msgspec.DecodeError:
        return {}


def _number(raw: Raw) -> float | None:
    """The value of a JSON number or boolean, or None for anything else."""
    data = bytes(raw)
    if data in (b"true", b"false"):
        return float(data == b"true")
    return float(data) if data[:1] in b"-0123456789" else None


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, (bool, int, float))}


def _with_tokens(rollout: Rollout) -> list[Raw]:
    """The transcript, with each call's token ids and log-probabilities on its last item."""
    if not rollout.tokens:
        return rollout.output
    output = list(rollout.output)
    for index, tokens in rollout.tokens.items():
        output[index] = _add_fields(output[index], _token_fields(tokens))
    return output


def _token_fields(tokens: Tokens) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "prompt_token_ids": _array("i", tokens.prompt_ids),
        "generation_token_ids": _array("i", tokens.generation_ids),
        "generation_log_probs": _array("f", tokens.log_probs),
    }
    if tokens.weights:
        fields["weight_versions"] = tokens.weights
    return fields


def _array(kind: Literal["i", "f"], data: bytes) -> list[Any]:
    values = array.array(kind, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _add_fields(item: Raw, fields: Mapping[str, Any]) -> Raw:
    """A JSON object with more fields; its own bytes stay as they are."""
    head = bytes(item).rstrip()[:-1].rstrip()
    tail = _encode(fields)[1:]
    return Raw(head + (b"" if head.endswith(b"{") else b",") + tail)
