"""Makes the result row of a finished rollout, with NeMo Gym's field names.

The row has ``responses_create_params`` and ``response`` with every field, ``reward``, the dataset's own
fields, the verifier's fields, ``_ng_task_index``, ``_ng_rollout_index`` and ``agent_ref``; the fields of this
runtime alone are under ``_gym``. Large parts are not decoded, only joined as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from gym_runtime.environment.roles import JudgedPending, JudgedVerdict, RoleLog
from gym_runtime.errors import UNREADABLE, GymError
from gym_runtime.messages.call_tokens import chained, with_tokens
from gym_runtime.messages.calls import RoleUse, role_numbers
from gym_runtime.messages.names import is_own
from gym_runtime.messages.outcomes import Failed, Outcome, RolloutRecord, Waiting
from gym_runtime.messages.responses import NULL
from gym_runtime.messages.rollout_spec import RolloutSpec
from gym_runtime.rollout.rollout import Rollout

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def make_record(
    task: RolloutSpec,
    outcome: Outcome,
    *,
    attempt: int,
    rollout: Rollout | None,
    verdict: JudgedVerdict | JudgedPending | None,
    duration_s: float,
    worker: str,
    role_use: Mapping[str, RoleUse] | None = None,
    started_anew: Sequence[str] = (),
) -> RolloutRecord:
    """The record of one rollout; without a verdict its row has no reward, and nor has it while it is pending.

    Args:
        role_use: what the environment's roles have cost; a verdict says it itself.
        started_anew: the reasons for which earlier attempts' work was discarded.
    """
    pending = verdict if isinstance(verdict, JudgedPending) else None
    asked = _role_log(rollout, verdict, role_use)
    verdict = verdict if isinstance(verdict, JudgedVerdict) else None
    row_fields = _row_fields(task.row) if rollout is None else rollout.row_fields
    tokens = [] if rollout is None else chained(rollout.tokens)
    row: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    if rollout is not None:
        response = rollout.response()
        row["responses_create_params"] = rollout.shown_params
        if tokens and not task.packed_tokens:
            response = msgspec.structs.replace(response, output=with_tokens(response.output, tokens))
        row["response"] = response
    elif "responses_create_params" in row_fields:
        row["responses_create_params"] = row_fields["responses_create_params"]
    if verdict is not None:
        row["reward"] = verdict.reward
    for name, value in row_fields.items():
        if not is_own(name):
            row[name] = value
            count_number(numbers, name, number_of(value))
    if verdict is not None:
        for name, value in verdict.components.items():
            count_number(numbers, name, value)
        for name, value in verdict.fields.items():
            # A verifier must not replace what the runtime itself says.
            if not is_own(name):
                row[name] = value
                count_number(numbers, name, value)
        if verdict.components:
            row["reward_components"] = verdict.components
        numbers["reward"] = verdict.reward
    if rollout is not None:
        usage = rollout.usage
        numbers["input_tokens"] = usage.input_tokens
        numbers["output_tokens"] = usage.output_tokens
        numbers["total_tokens"] = usage.total_tokens
    row["_ng_task_index"] = task.task_index
    row["_ng_rollout_index"] = task.rollout_index
    row["agent_ref"] = {"name": task.environment} if task.agent_ref is NULL else task.agent_ref
    about: dict[str, Any] = {
        "rollout_id": task.rollout_id,
        "environment": task.environment,
        "attempt": attempt,
        "outcome": outcome,
        "turns": rollout.turns if rollout else 0,
        "tool_calls": rollout.tool_calls if rollout else 0,
        "resumed_turns": rollout.resumed_turns if rollout else 0,
        "rebuilt_sessions": rollout.rebuilt_sessions if rollout else 0,
        "duration_s": round(duration_s, 4),
    }
    if started_anew:
        about["started_anew"] = started_anew
    if rollout is not None and rollout.weight_versions:
        about["weight_versions"] = rollout.weight_versions
    if tokens:
        about["token_segments"] = tokens[-1].segment + 1
    if rollout is not None:
        about["timing"] = rollout.times.fields()
    if asked.use:
        about["roles"] = asked.use
        if asked.answers:
            about["role_answers"] = asked.answers
        if task.role_sampling:
            about["role_sampling"] = task.role_sampling
        numbers.update(role_numbers(asked.use))
    row["_gym"] = about
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
        roles=asked.use,
        turns=rollout.turns if rollout else 0,
        tool_calls=rollout.tool_calls if rollout else 0,
        duration_s=duration_s,
        worker=worker,
        group=task.group,
        waiting=None if pending is None else _waiting(task, pending),
        tokens=tokens if task.packed_tokens else [],
    )


def refused_record(task: RolloutSpec, error: GymError, worker: str) -> RolloutRecord:
    """The record of a rollout that was not begun."""
    return make_record(
        task,
        Failed(fault=error.fault()),
        attempt=task.attempt_base + 1,
        rollout=None,
        verdict=None,
        duration_s=0.0,
        worker=worker,
    )


def _waiting(task: RolloutSpec, pending: JudgedPending) -> Waiting:
    # The row stands in the record already.
    return Waiting(features=pending.features, task=msgspec.structs.replace(task, row=NULL))


def _role_log(
    rollout: Rollout | None,
    verdict: JudgedVerdict | JudgedPending | None,
    role_use: Mapping[str, RoleUse] | None,
) -> RoleLog:
    """What models in roles answered to the agent, then to the environment."""
    log = RoleLog()
    if rollout is not None:
        log.extend(rollout.roles.log)
    if verdict is not None:
        log.extend(RoleLog(verdict.role_answers, verdict.role_use))
    else:
        log.extend(RoleLog(use=role_use))
    return log


def _row_fields(row: Raw) -> dict[str, Raw]:
    try:
        return _fields(row)
    except UNREADABLE:
        return {}


def number_of(raw: Raw) -> float | None:
    """The value of a JSON number or boolean, or None for anything else."""
    data = bytes(raw)
    if data in (b"true", b"false"):
        return float(data == b"true")
    # The first byte says what a JSON value is, without decoding it.
    return float(data) if data[:1] in b"-0123456789" else None


def count_number(numbers: dict[str, float], name: str, value: object) -> None:
    """Store a field if it is a number; an earlier number under its name is removed in any case."""
    numbers.pop(name, None)
    if isinstance(value, (bool, int, float)):
        # An integer of JSON may be larger than any float.
        with suppress(OverflowError):
            number = float(value)
            # JSON has no other numbers: the record could not be decoded.
            if math.isfinite(number):
                numbers[name] = number
