"""What metrics need of one finished rollout, from its record or from a row that an earlier run wrote.

Both give the same sample for the same rollout, so a resumed run reports what an uninterrupted one would.
Rows by NeMo Gym are read too; they lack the turns, tool calls and duration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Raw

from gym_runtime.errors import Fault
from gym_runtime.messages.calls import RoleUse, role_numbers
from gym_runtime.messages.outcomes import Failed, Outcome, RolloutRecord

USAGE = ("input_tokens", "output_tokens", "total_tokens")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One finished rollout.

    Attributes:
        agent: the name in its ``agent_ref``; metrics are kept per agent.
        outcome: ``completed``, ``truncated``, ``failed`` or ``cancelled``.
        failure: whose fault it was, as a fault's ``kind``; empty unless it failed.
        reward: None exactly when no verifier returned one.
        numbers: the numeric fields of its row, finite, with ``reward``, the usage totals and what roles cost.
        roles: what models in roles cost, by role.
    """

    task_index: int
    rollout_index: int
    agent: str
    outcome: str
    failure: str = ""
    reward: float | None = None
    numbers: dict[str, float] = {}
    roles: dict[str, RoleUse] = {}
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0


class _Ref(msgspec.Struct, frozen=True):
    name: str = ""


class _Referred(msgspec.Struct, frozen=True):
    agent_ref: _Ref = _Ref()


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: float = 0
    output_tokens: float = 0
    total_tokens: float = 0


class _Response(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Own(msgspec.Struct, frozen=True):
    """What this runtime notes on a row under ``_gym``."""

    outcome: Outcome | None = None
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0
    roles: dict[str, RoleUse] = {}


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_referred = msgspec.json.Decoder(_Referred).decode
_decode_ref = msgspec.json.Decoder(_Ref).decode
_decode_response = msgspec.json.Decoder[_Response | None](_Response | None).decode
_decode_own = msgspec.json.Decoder(_Own).decode
_decode_index = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_fault = msgspec.json.Decoder(Fault).decode
_decode_components = msgspec.json.Decoder(dict[str, Raw]).decode


def sample_record(record: RolloutRecord) -> Sample:
    """The sample of a record as it arrives."""
    numbers = {name: value for name, value in record.numbers.items() if _counts(name, value)}
    if record.reward is not None:
        numbers["reward"] = record.reward
    outcome = record.outcome
    return Sample(
        task_index=record.task_index,
        rollout_index=record.rollout_index,
        agent=_decode_referred(record.row).agent_ref.name or record.environment,
        outcome=outcome.__struct_config__.tag,  # pyright: ignore[reportArgumentType]
        failure=outcome.fault.kind if isinstance(outcome, Failed) else "",
        reward=record.reward,
        numbers=numbers,
        roles=record.roles,
        turns=record.turns,
        tool_calls=record.tool_calls,
        duration_s=record.duration_s,
    )


def sample_row(line: bytes) -> Sample:
    """The sample of a stored row, from the rollouts or from the failures.

    Raises:
        msgspec.DecodeError: the line is no rollout row.
    """
    try:
        fields = _decode_fields(line)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from error
    try:
        task_index = _decode_index(fields["_ng_task_index"])
        rollout_index = _decode_index(fields["_ng_rollout_index"])
    except KeyError as error:
        raise msgspec.ValidationError(f"Object missing required field `{error.args[0]}`") from None
    own = _decode_own(fields["_gym"]) if "_gym" in fields else _Own()
    ref = _decode_ref(fields["agent_ref"]) if "agent_ref" in fields else _Ref()
    numbers = _numbers(fields) | role_numbers(own.roles)
    outcome, failure = _ending(fields, own)
    # A failure is never a reward, whatever a foreign row says.
    if outcome in ("failed", "cancelled"):
        numbers.pop("reward", None)
    return Sample(
        task_index=task_index,
        rollout_index=rollout_index,
        agent=ref.name,
        outcome=outcome,
        failure=failure,
        reward=numbers.get("reward"),
        numbers=numbers,
        roles=own.roles,
        turns=own.turns,
        tool_calls=own.tool_calls,
        duration_s=own.duration_s,
    )


def _ending(fields: Mapping[str, Raw], own: _Own) -> tuple[str, str]:
    """The outcome, and whose fault it was."""
    if "_ng_failure_class" in fields:
        given = _decode_text(fields["_ng_failure_class"])
        if given == "cancelled":
            return given, ""
        return "failed", _decode_fault(fields["_ng_failure"]).kind if "_ng_failure" in fields else given
    return (own.outcome.__struct_config__.tag if own.outcome else "completed"), ""  # pyright: ignore[reportReturnType]


def _numbers(fields: Mapping[str, Raw]) -> dict[str, float]:
    found: dict[str, float] = {}
    response = _decode_response(fields["response"]) if "response" in fields else None
    if response is not None and response.usage is not None:
        found = msgspec.structs.asdict(response.usage)
    for name, raw in fields.items():
        value = _number(raw)
        if value is not None and _counts(name, value):
            found[name] = value
    if "reward_components" in fields:
        for name, raw in _decode_components(fields["reward_components"]).items():
            value = _number(raw)
            if value is not None and math.isfinite(value) and name not in found:
                found[name] = value
    return found


def _number(raw: Raw) -> float | None:
    """The value of a JSON number or boolean, or None for anything else."""
    # No copy: the value may be a transcript of megabytes, and its first byte tells its type.
    data = memoryview(raw)
    first = data[0]
    if first in b"-0123456789":
        return float(bytes(data))
    if first in b"tf":
        # 0x74 is the t of true.
        return float(first == 0x74)
    return None


def _counts(name: str, value: float) -> bool:
    return math.isfinite(value) and not name.startswith("_ng_")
