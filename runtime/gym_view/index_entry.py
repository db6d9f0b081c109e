"""The index's entry for one result row: its place in the file, and the fields to filter and sort by.

`read_entry` takes rows of this runtime and of NeMo Gym, rollouts and failures, and lines that are neither.
"""

from __future__ import annotations

import contextlib
import math
import re
import zlib
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import KeyCounts
from msgspec import Raw

OUTCOMES = ("completed", "truncated", "failed", "cancelled", "unreadable")
"""An entry's outcome is a position in this list. ``unreadable``: the line is no JSON object."""

LIMIT = "limit"
"""The first part of a `IndexEntry.fault` that says which limit truncated a rollout."""

_MESSAGE_CHARACTERS = 160
_NAME_CHARACTERS = 500  # a page with a name of 100,000 is laid out for seconds
_CHANGING = re.compile(
    r"'[^']*'|\"[^\"]*\"|`[^`]*`"  # quoted values
    r"|\b(?=[\w.:/-]*\d)[\w-]+(?:[.:/][\w-]+)+"  # addresses, paths, ids with dots
    r"|\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b"  # hexadecimal ids
    r"|\d+(?:\.\d+)?"
)
_LAYOUT = b" \t\r\n\"'\\"
_U32 = MOST_TASKS = 2**32 - 1
_U16 = MOST_ROLLOUTS = 2**16 - 1
"""An entry's task and rollout are no larger: these stand for all that are."""
_F32 = 3e38  # 32 bits hold a little more


class DoubledRows:
    """Finds rows of a rollout that its file has had before, because the first row of a rollout counts.

    Rows of one rollout have the same environment, task index and rollout index. A row that cannot be read is
    never doubled, nor is a row whose index is larger than an entry can hold.
    """

    def __init__(self) -> None:
        self._known: dict[str, KeyCounts] = {}

    def again(self, entry: IndexEntry) -> bool:
        """Whether an earlier entry was of the same rollout."""
        if (
            OUTCOMES[entry.outcome] == "unreadable"
            or entry.task >= MOST_TASKS
            or entry.rollout >= MOST_ROLLOUTS
        ):
            return False
        return self._known.setdefault(entry.environment, KeyCounts()).increase(entry.task, entry.rollout) > 1


# `gc=False`: a reader holds millions of entries, which are never part of a cycle.
class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row in a few numbers.

    Attributes:
        environment: the name in ``agent_ref``, at most `_NAME_CHARACTERS` of it.
        outcome: a position in `OUTCOMES`.
        reward: NaN if the rollout has no reward.
        fault: of a failure, ``kind``, ``stage`` and message joined by the unit separator (0x1f); ids, numbers
            and quotations in the message are replaced by ``…``, so that equal failures are equal. Of a
            truncated rollout `LIMIT`, nothing and the reason. Else empty.
        key: a checksum of the prompt, equal in every run of the same task; 0 if the row has no prompt.
        created_s: when the response was created, in seconds since the epoch; 0 if unknown.
        duration_s: of the counted attempt.
    """

    task: int = 0
    rollout: int = 0
    environment: str = ""
    outcome: int = 0
    reward: float = math.nan
    fault: str = ""
    attempt: int = 1
    turns: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_s: float = 0.0
    created_s: int = 0
    key: int = 0


class _Ref(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Usage(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0


class _Incomplete(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""


class _Response(msgspec.Struct, frozen=True, gc=False):
    usage: _Usage | None = None
    created_at: float = 0
    incomplete_details: _Incomplete | None = None


class _Params(msgspec.Struct, frozen=True, gc=False):
    input: Raw = Raw(b"")


class _Fault(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    stage: str = ""
    message: str = ""


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    reason: str = ""
    fault: _Fault | None = None


class _Own(msgspec.Struct, frozen=True, gc=False):
    outcome: _Outcome | None = None
    attempt: int = 1
    turns: int = 0
    tool_calls: int = 0
    duration_s: float = 0.0


class _Row(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    # A foreign row's `true` is 1, as in the metrics of its run.
    reward: float | bool | None = None
    task: int = msgspec.field(name="_ng_task_index", default=-1)
    rollout: int = msgspec.field(name="_ng_rollout_index", default=0)
    agent_ref: _Ref | None = None
    own: _Own | None = msgspec.field(name="_gym", default=None)
    response: _Response | None = None
    params: _Params | None = msgspec.field(name="responses_create_params", default=None)
    failure_class: str = msgspec.field(name="_ng_failure_class", default="")
    failure: _Fault | None = msgspec.field(name="_ng_failure", default=None)
    judge_error: str = msgspec.field(name="_ng_failure_judge_error", default="")
    ng_attempt: int = msgspec.field(name="_ng_attempt_index", default=-1)


_decode_row = msgspec.json.Decoder(_Row).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read_entry(line: bytes, position: int) -> IndexEntry:
    """The entry of a line; never raises.

    ``position`` counts the file's rows from 0; a row that does not say its task is the task of its position.
    """
    try:
        return _entry(_decode_row(line), line, position)
    except UNREADABLE:
        row = _lenient(line)
        if row is not None:
            return _entry(row, line, position)
        return IndexEntry(task=_within(position, _U32), outcome=OUTCOMES.index("unreadable"))


def _entry(row: _Row, line: bytes, position: int) -> IndexEntry:
    own = row.own or _Own()
    response = row.response or _Response()
    usage = response.usage or _Usage()
    outcome, fault = _ending(row, own, response)
    # Failed and cancelled: a number there is not a verifier's.
    reward = math.nan if row.reward is None or outcome >= 2 else float(row.reward)
    return IndexEntry(
        task=_within(row.task if row.task >= 0 else position, _U32),
        rollout=_within(row.rollout, _U16),
        environment=row.agent_ref.name[:_NAME_CHARACTERS] if row.agent_ref else "",
        outcome=outcome,
        reward=reward,
        fault=fault,
        # NeMo Gym counts attempts from 0.
        attempt=_within(own.attempt if row.own or row.ng_attempt < 0 else row.ng_attempt + 1, 255),
        turns=_within(own.turns, _U16),
        # NeMo Gym's rows do not count them; each executed call has left an output.
        tool_calls=_within(own.tool_calls if row.own else line.count(b'"function_call_output"'), _U16),
        input_tokens=_within(usage.input_tokens, _U32),
        output_tokens=_within(usage.output_tokens, _U32),
        duration_s=min(max(own.duration_s, 0.0), _F32),
        created_s=_within(int(response.created_at), _U32) if math.isfinite(response.created_at) else 0,
        key=_key(row.params),
    )


def _ending(row: _Row, own: _Own, response: _Response) -> tuple[int, str]:
    """The outcome and its fault."""
    named = own.outcome or _Outcome()
    if row.failure_class == "cancelled" or named.type == "cancelled":
        return 3, ""
    if row.failure_class or named.type == "failed":
        fault = row.failure or named.fault or _Fault(kind=row.failure_class, message=row.judge_error)
        kind, stage = fault.kind[:_NAME_CHARACTERS], fault.stage[:_NAME_CHARACTERS]
        return 2, "\x1f".join((kind, stage, pattern(fault.message)))
    if named.type == "truncated":
        return 1, f"{LIMIT}\x1f\x1f{named.reason[:_MESSAGE_CHARACTERS]}"
    if not named.type and response.incomplete_details is not None:
        return 1, f"{LIMIT}\x1f\x1f{response.incomplete_details.reason[:_MESSAGE_CHARACTERS]}"
    return 0, ""


def pattern(message: str) -> str:
    """A message without what differs from one failure to the next.

    >>> pattern("task 17 of run 'abc': no answer from 10.0.0.7:8000 after 30.5 s")
    'task … of run …: no answer from … after … s'
    """
    # Cut before the search: a message may be megabytes, and is foreign text.
    line = " ".join(message[: 4 * _MESSAGE_CHARACTERS].split())
    return _CHANGING.sub("…", line)[:_MESSAGE_CHARACTERS]


def _key(params: _Params | None) -> int:
    """A checksum of the prompt that does not depend on how its JSON is laid out."""
    if params is None or not params.input:
        return 0
    raw = bytes(params.input)
    if b"\\u" in raw:  # the same character may stand as itself elsewhere
        with contextlib.suppress(*UNREADABLE):  # half a surrogate pair
            raw = _encode(_decode_any(raw))
    # 0 means "no prompt".
    return zlib.crc32(raw.translate(None, _LAYOUT)) or 1


def _within(value: int, most: int) -> int:
    return min(max(value, 0), most)


def _lenient(line: bytes) -> _Row | None:
    """What can be taken of an object with a field of another type than ours; None of anything else."""
    try:
        fields = _decode_fields(line)
    except UNREADABLE:
        return None
    taken: dict[str, Any] = {}
    for name, wire_name, kind in _FIELDS:
        if wire_name in fields:
            try:
                taken[name] = msgspec.json.decode(fields[wire_name], type=kind)
            except UNREADABLE:
                continue
    return _Row(**taken)


_FIELDS = [(field.name, field.encode_name, field.type) for field in msgspec.structs.fields(_Row)]
