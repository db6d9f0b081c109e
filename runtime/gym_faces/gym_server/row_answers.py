"""The bodies of answers: result rows, verdicts, metrics."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from gym_runtime.environment.verdict import Verdict
from gym_runtime.errors import UNREADABLE, TaskError
from gym_runtime.files.run_metrics import Metrics
from gym_runtime.files.sample import sample_row
from gym_runtime.messages.names import NUMBERS, is_mark, is_own
from gym_runtime.messages.outcomes import Failed, RolloutRecord
from msgspec import Raw

from gym_faces.gym_server.http_answers import Answer, of_fault

_CLIENTS = ("agent_ref", *NUMBERS)
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Batch(msgspec.Struct, frozen=True):
    verify_responses: list[Raw]


class _Entry(msgspec.Struct, frozen=True):
    agent_metrics: Raw = Raw(b"{}")
    key_metrics: Raw = Raw(b"{}")
    group_level_metrics: Raw = Raw(b"[]")


_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_entries = msgspec.json.Decoder(list[_Entry]).decode


def of_record(record: RolloutRecord, asked: Mapping[str, Raw]) -> Answer:
    """The result row of a rollout, with the client's own numbers and ``agent_ref``; or why it failed."""
    if isinstance(record.outcome, Failed):
        return of_fault(record.outcome.fault)
    if record.reward is None:
        return Answer(503, _encode({"detail": f"the rollout has no verdict: {record.ending}"}))
    row = _decode_fields(record.row)
    for name in _CLIENTS:
        if name in asked:
            row[name] = asked[name]
        else:
            row.pop(name, None)
    return Answer(200, _encode(row))


def of_verdict(verdict: Verdict, asked: Mapping[str, Raw]) -> Answer:
    """The request's row and response, with the verdict's fields."""
    said = {name: value for name, value in asked.items() if name in NUMBERS or not is_mark(name)}
    fields = {name: value for name, value in verdict.fields.items() if not is_own(name)}
    row = {**said, **fields, "reward": verdict.reward}
    if verdict.components:
        row["reward_components"] = verdict.components
    return Answer(200, _encode(row))


def of_batch(body: bytes) -> Answer:
    """The metrics of result rows of one agent.

    Raises:
        TaskError: the body does not hold rows.
    """
    metrics = Metrics()
    try:
        for row in _decode_batch(body).verify_responses:
            metrics.add_sample(msgspec.structs.replace(sample_row(bytes(row)), agent="all"))
    except UNREADABLE as error:
        raise TaskError(f"the body does not hold 'verify_responses' that are result rows: {error}") from error
    entries = _decode_entries(b"".join(metrics.aggregate()))
    return Answer(200, _encode(entries[0] if entries else _Entry()))
