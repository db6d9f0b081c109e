"""What metrics need of one finished rollout, from its record or from a row that an earlier run wrote.

Both give the same sample for the same rollout, so a resumed run reports what an uninterrupted one would.
Rows by NeMo Gym are read too; they lack the turns, tool calls and duration.
"""

from __future__ import annotations

import codecs
import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, Fault, UsageError
from gym_runtime.messages.calls import RoleUse, role_numbers
from gym_runtime.messages.outcomes import Completed, Failed, Outcome, RolloutRecord, number_of

USAGE = ("input_tokens", "output_tokens", "total_tokens")
CANCELLED = "cancelled"
SUBSET_CHARS = 100
NOT_ASKED, NO_ANSWER = -1, 0
"""The `Sample.answer` of a row without the field ``extracted_answer``, and of one in which it is empty."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One finished rollout.

    Attributes:
        agent: the name in its ``agent_ref``; metrics are kept per agent.
        rollout_id: with the run, as `RolloutRecord.rollout_id`; empty if the row does not say it.
        outcome: ``completed``, ``truncated``, ``failed`` or ``cancelled``.
        failure: whose fault it was, as a fault's ``kind``; empty unless it failed.
        reward: None exactly when no verifier returned one.
        numbers: the numeric fields of its row, finite, with ``reward``, the usage totals and what roles cost.
        roles: what models in roles cost, by role.
        compared: its reward came from the comparison of its group, as its row says.
        terminal: it failed, and would fail again.
        attempt: the last attempt, counted from 1.
        answer: a number that equal texts of its row's ``extracted_answer`` share, 0 without an answer, -1
            where the row has no such field.
        subset: its row's ``subset_for_metrics``; empty without one.
    """

    task_index: int
    rollout_index: int
    agent: str
    outcome: str
    rollout_id: str = ""
    environment: str = ""
    failure: str = ""
    fault: Fault | None = None
    reward: float | None = None
    numbers: dict[str, float] = {}
    roles: dict[str, RoleUse] = {}
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0
    compared: bool = False
    terminal: bool = False
    attempt: int = 1
    answer: int = NOT_ASKED
    subset: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.task_index, self.rollout_index


class _Ref(msgspec.Struct, frozen=True):
    name: str = ""


class _Referred(msgspec.Struct, frozen=True):
    agent_ref: _Ref = _Ref()
    extracted_answer: Raw | msgspec.UnsetType = msgspec.UNSET
    subset_for_metrics: Raw | msgspec.UnsetType = msgspec.UNSET


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: float = 0
    output_tokens: float = 0
    total_tokens: float = 0


class _Response(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Own(msgspec.Struct, frozen=True):
    """What this runtime notes on a row under ``_gym``."""

    rollout_id: str = ""
    environment: str = ""
    outcome: Outcome = Completed()
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0
    roles: dict[str, RoleUse] = {}
    compared: list[int] = []


_Index = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    task_index: _Index = msgspec.field(name="_ng_task_index")
    rollout_index: _Index = msgspec.field(name="_ng_rollout_index")
    agent_ref: _Ref = _Ref()
    response: _Response | None = None
    reward_components: dict[str, Raw] = {}
    own: _Own = msgspec.field(name="_gym", default=_Own())
    failure_class: str | None = msgspec.field(name="_ng_failure_class", default=None)
    terminal: bool = msgspec.field(name="_ng_failure_terminal", default=False)
    attempt_index: int = msgspec.field(name="_ng_attempt_index", default=0)
    fault: Fault | None = msgspec.field(name="_ng_failure", default=None)


_decode_row = msgspec.json.Decoder(_Row).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_referred = msgspec.json.Decoder(_Referred).decode


def sample_record(record: RolloutRecord, agent: str | None = None) -> Sample:
    """The sample of a record as it arrives.

    Args:
        agent: for a caller that needs none: the name is in the row, which takes time to read.
    """
    numbers = {name: value for name, value in record.numbers.items() if _counts(name, value)}
    if record.reward is not None:
        numbers["reward"] = record.reward
    fault = record.outcome.fault if isinstance(record.outcome, Failed) else None
    answer, subset = NOT_ASKED, ""
    if agent is None:
        read = _decode_referred(record.row)
        agent, answer = read.agent_ref.name or record.environment, _answer(read.extracted_answer)
        subset = _subset(read.subset_for_metrics)
    return Sample(
        task_index=record.task_index,
        rollout_index=record.rollout_index,
        agent=agent,
        rollout_id=record.rollout_id,
        environment=record.environment,
        outcome=_tag(record.outcome),
        failure=fault.kind if fault else "",
        fault=fault,
        reward=record.reward,
        numbers=numbers,
        roles=record.roles,
        turns=record.turns,
        tool_calls=record.tool_calls,
        duration_s=record.duration_s,
        terminal=fault is not None and fault.kind == "task",
        attempt=record.attempt,
        answer=answer,
        subset=subset,
    )


def sample_row(line: bytes) -> Sample:
    """The sample of a stored row, from the rollouts or from the failures.

    Raises:
        msgspec.DecodeError: the line is no rollout row.
    """
    try:
        row, fields = _decode_row(line), _decode_fields(line)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from error
    own, given = row.own, row.failure_class
    numbers = _numbers(row, fields) | role_numbers(own.roles)
    outcome = _tag(own.outcome) if given is None else CANCELLED if given == CANCELLED else "failed"
    # A failure is never a reward, whatever a foreign row says.
    if outcome in ("failed", CANCELLED):
        numbers.pop("reward", None)
    return Sample(
        task_index=row.task_index,
        rollout_index=row.rollout_index,
        agent=row.agent_ref.name,
        rollout_id=own.rollout_id,
        environment=own.environment,
        outcome=outcome,
        failure="" if given in (None, CANCELLED) else row.fault.kind if row.fault else given,
        fault=row.fault,
        reward=numbers.get("reward"),
        numbers=numbers,
        roles=own.roles,
        turns=own.turns,
        tool_calls=own.tool_calls,
        duration_s=own.duration_s,
        compared=bool(own.compared),
        terminal=row.terminal,
        # NeMo Gym counts attempts from 0.
        attempt=row.attempt_index + 1,
        answer=_answer(fields.get("extracted_answer", msgspec.UNSET)),
        subset=_subset(fields.get("subset_for_metrics", msgspec.UNSET)),
    )


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, without a BOM, and their numbers; none if there is no file."""
    if path.exists():
        with path.open("rb", buffering=2**20) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # of an editor
                if not line.isspace():
                    yield number, line


TORN = "the last line is torn, or still being written; it does not count"


def is_torn(line: bytes, number: int, error: Exception, rest: Iterator[object]) -> bool:
    """Whether a line that cannot be read is what a killed process may leave at the end of a file.

    Args:
        number: the line's, from 1.
        rest: the lines after it that are not blank, if any.
    """
    if not line.endswith(b"\n"):
        return True
    # An editor, or what was written next, may have ended it; a file of one such line is of another kind.
    broken = not isinstance(error, msgspec.ValidationError)
    return broken and number > 1 and next(rest, None) is None


def samples_of(path: Path, torn: list[Path] | None = None) -> Iterator[tuple[Sample, bytes, int]]:
    """The samples of a file's rows, each with its line and the line's number; none if there is no file.

    Args:
        torn: gets the path where the last line, which a killed process may leave torn, does not count.

    Raises:
        UsageError: a line is no rollout row; the message names the place.
    """
    lines = lines_of(path)
    for number, line in lines:
        try:
            sample = sample_row(line)
        except UNREADABLE as error:
            if is_torn(line, number, error, lines):
                if torn is not None:
                    torn.append(path)
                return
            raise UsageError(
                f"{path}:{number} is no rollout row ({error}); remove or repair the line to go on"
            ) from None
        yield sample, line, number


def _answer(raw: Raw | msgspec.UnsetType) -> int:
    if isinstance(raw, msgspec.UnsetType):
        return NOT_ASKED
    text = bytes(raw)
    if text in (b"null", b'""', b"[]"):
        return NO_ANSWER
    # Seven bytes: positive in an array of signed numbers of eight.
    return 1 + int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())


def _subset(raw: Raw | msgspec.UnsetType) -> str:
    # 0x22 is a quotation mark.
    if isinstance(raw, msgspec.UnsetType) or memoryview(raw)[0] != 0x22:
        return ""
    return _decode_text(raw)[:SUBSET_CHARS]


def _tag(outcome: Outcome) -> str:
    return str(outcome.__struct_config__.tag)


def _numbers(row: _Row, fields: Mapping[str, Raw]) -> dict[str, float]:
    usage = row.response and row.response.usage
    found: dict[str, float] = msgspec.structs.asdict(usage) if usage else {}
    for name, raw in fields.items():
        value = number_of(raw)
        if value is not None and _counts(name, value):
            found[name] = value
    for name, raw in row.reward_components.items():
        value = number_of(raw)
        if value is not None and math.isfinite(value) and name not in found:
            found[name] = value
    return found


def _counts(name: str, value: float) -> bool:
    return math.isfinite(value) and not name.startswith("_ng_")
