"""How a rollout ended, and the record of it that is committed once."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Raw

from gym_runtime.errors import UNREADABLE, Fault, TaskError
from gym_runtime.messages.branches import Credit
from gym_runtime.messages.call_tokens import CallTokens, row_with_tokens
from gym_runtime.messages.calls import Comparison, RoleUse
from gym_runtime.messages.repeated_images import read_alone
from gym_runtime.messages.responses import CreateParams
from gym_runtime.messages.rollout_spec import LONG_ROW_BYTES, GroupSpan, RolloutSpec
from gym_runtime.messages.sequences import TokenSequence, packed_sequences, token_sequences
from gym_runtime.messages.stored_records import Stored
from gym_runtime.messages.transcripts import conversation, html_table, html_transcript, row_parts


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
    """The contribution of a waiting rollout to the comparison of its group.

    Attributes:
        features: what its verification returned, as JSON.
        task: the rollout's spec without its row, from which the comparison's spec is built.
    """

    features: Raw
    task: RolloutSpec


_LEFT_OUT = Raw(b'"gym-input"')
_PLACE = re.compile(rb'"input":' + bytes(_LEFT_OUT))
_BEGINNING = 256


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a row that its rollout's result lacks, because the client has the row.

    Attributes:
        start: where it begins in the row, in bytes.
        size: of its JSON, in bytes.
        crc32: the checksum of its JSON.
    """

    start: int
    size: int
    crc32: int


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The committed result of one rollout.

    Attributes:
        row: the result row as it is written to a file: input fields, response, reward, bookkeeping. A
            failed rollout's row has no reward; it has the transcript up to the failure.
        tokens: of each model call that reported them. The broker's ``row`` is without them; `read_record`
            writes them into it.
        reward: None exactly when no verifier returned one. Of a rollout with several seats the main one's.
        seat: the main one, of a rollout with several trained seats.
        rewards: of each seat that the verifier named.
        numbers: the row's numeric top-level fields, for metrics without decoding the row.
        roles: what models in roles cost, by role.
        turns, tool_calls: how many model calls and tool calls the counted attempt made.
        duration_s: from the first delivery of this attempt to its end.
        group: the rollouts that it is compared with, if its environment compares.
        waiting: set exactly while the reward is still to come from the comparison of the group.
        comparison: the result, if this is the record of a comparison; its ``rollout_index`` is negative.
        images: images that come again have names at the broker (`gym_runtime.messages.repeated_images`).
        left_out: the broker's ``row`` lacks its input, which the run's own client puts back (`with_input`).
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
    tokens: list[CallTokens] = []
    seat: str = ""
    rewards: dict[str, float] = {}
    images: bool = False
    left_out: LeftOut | None = None

    def reward_of(self, seat: str) -> float | None:
        """The reward of a seat: what the verifier named for it, or `reward` for the main one; else None."""
        own = self.reward if seat in ("", self.seat) else None
        return None if self.reward is None else self.rewards.get(seat, own)

    @property
    def rollout_id(self) -> str:
        return f"{self.run}.{self.task_index}.{self.rollout_index}"

    @property
    def ending(self) -> str:
        """The outcome in a few words: its type, and the limit or the fault."""
        outcome = self.outcome
        kind = str(outcome.__struct_config__.tag)
        if isinstance(outcome, Truncated):
            return f"{kind}: {outcome.reason}"
        return f"{kind}: {outcome.fault.message}" if isinstance(outcome, Failed) else kind

    def to_dict(self) -> dict[str, Any]:
        """The record as plain Python that JSON can hold: its attributes, with the ``row`` decoded.

        Left out is what only the runtime reads: ``group``, ``waiting``, ``comparison``, and ``tokens``, which
        are in the row, too.

        Raises:
            TaskError: its row is damaged.
        """
        attributes = {name: getattr(self, name) for name in (*_SHOWN, "rollout_id", "ending")}
        try:
            return {**msgspec.to_builtins(attributes), "row": msgspec.json.decode(self.row)}
        except UNREADABLE as error:
            raise TaskError(f"not a row: {error}") from error

    def _repr_html_(self) -> str:
        """The notebook view: the verdict, and the conversation folded."""
        facts = (self.environment, self.reward, self.ending, self.turns, self.tool_calls, self.duration_s)
        heads = ("environment", "reward", "outcome", "turns", "tool calls", "seconds")
        return html_table(heads, [facts]) + html_transcript(self.row, f"rollout {self.rollout_id}")

    def sequences(self, credit: Credit = "accepted", *, shared: bool = True) -> list[TokenSequence]:
        """All that the policy sampled: one sequence per segment and branch, in order; see `TokenSequence`.

        A rollout that failed before its first model call has none.

        Args:
            credit: which of them are trained on: see `Credit`. The others have the weight 0 and no mask.
            shared: False masks the turns that a fork shares with the rollout that it forks, so that each
                token is trained once.

        Raises:
            UsageError: it was made without ``return_token_ids``; there is no such credit; or numpy is not
                installed.
            TaskError: its row is damaged.
        """
        truncated = isinstance(self.outcome, Truncated)
        if self.tokens:
            return packed_sequences(self.tokens, self.row, truncated=truncated, credit=credit, shared=shared)
        return token_sequences(self.row, truncated=truncated, credit=credit, shared=shared)

    @property
    def response(self) -> dict[str, Any] | None:
        """The row's ``response`` as plain Python, decoded at each use; None without a response."""
        return msgspec.json.decode(row_parts(self.row).response)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation as Chat Completions messages, converted at each use; see `conversation`.

        Raises:
            TaskError: its row is damaged.
        """
        return conversation(self.row)


_SHOWN = [
    name
    for name in RolloutRecord.__struct_fields__
    if name not in ("row", "group", "waiting", "comparison", "tokens", "images", "left_out")
]
encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(RolloutRecord).decode


def read_record(payload: bytes) -> RolloutRecord:
    """The record that is stored at the broker, with the whole row.

    Raises:
        msgspec.DecodeError: it is damaged.
    """
    record = decode_record(payload)
    if record.images:
        record = msgspec.structs.replace(record, row=read_alone(record.row), images=False)
    if not record.tokens:
        return record
    try:
        row = row_with_tokens(record.row, record.tokens)
    except (LookupError, ValueError) as error:
        raise msgspec.DecodeError(f"its tokens do not fit its row: {error!r}") from error
    return msgspec.structs.replace(record, row=row)


def without_input(row: Raw, params: CreateParams) -> tuple[CreateParams, LeftOut | None]:
    """A row's parameters as its result has them; with None if their input is short, or is not the row's."""
    text = bytes(params.input)
    # In a result only `include` comes before the input.
    if len(text) < LONG_ROW_BYTES or _PLACE.search(params.include):
        return params, None
    whole = bytes(row)
    # By its beginning: `find` prepares a search for all of it, which takes 0.5 ms for 256 KB.
    start = whole.find(text[:_BEGINNING])
    if start < 0 or not whole.startswith(text, start):
        return params, None
    left_out = LeftOut(start=start, size=len(text), crc32=crc32(text))
    return msgspec.structs.replace(params, input=_LEFT_OUT), left_out


def with_input(record: RolloutRecord, text: bytes) -> RolloutRecord:
    """A record with the input that its row lacks.

    Args:
        text: what the client's row has at the place that ``left_out`` names.

    Raises:
        msgspec.DecodeError: this is not what was left out.
    """
    left, place = record.left_out, _PLACE.search(record.row)
    if left is None or place is None or (len(text), crc32(text)) != (left.size, left.crc32):
        raise msgspec.DecodeError("it lacks its row's input, and its client does not have that row any more")
    row = memoryview(record.row)
    whole = b"".join((row[: place.start()], b'"input":', text, row[place.end() :]))
    return msgspec.structs.replace(record, row=Raw(whole), left_out=None)


def number_of(raw: Raw) -> float | None:
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


RESULTS = Stored(read_record, attrgetter("rollout_id"))
"""Reads what is stored under ``rollout.<rollout id>``."""

_SUBJECT = re.compile(r"rollout\.[^.]+\.(0|[1-9][0-9]{0,11})\.(0|-?[1-9][0-9]{0,11})", re.ASCII)
"""Exactly as workers write it, so that no second subject is read as the same rollout's."""


def rollout_of(subject: str) -> tuple[int, int] | None:
    """The task's and the rollout's index in the subject of a result; None if it is no such subject."""
    found = _SUBJECT.fullmatch(subject)
    return (int(found[1]), int(found[2])) if found else None
