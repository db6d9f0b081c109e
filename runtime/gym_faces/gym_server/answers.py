"""Answers over HTTP: result rows, verdicts, metrics; errors as FastAPI writes them, ``{"detail": "…"}``.

    ======================================  ======  ==============================================
    what happened                           status  what NeMo RL makes of it
    ======================================  ======  ==============================================
    the row is wrong (`TaskError`)          422     a data error
    any other failure of a rollout          503     a transport error, which it retries
    ======================================  ======  ==============================================

Neither has a reward: a failure must not become a reward of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from aiohttp import web
from gym_runtime import Failed, RolloutRecord, TaskError, UsageError, Verdict
from gym_runtime.errors import UNREADABLE, Fault, GymError, NotThereYet
from gym_runtime.files import Metrics, sample_row
from gym_runtime.messages import NUMBERS, is_mark, is_own
from gym_runtime.timing import RETRY_AFTER_S
from msgspec import Raw

from gym_faces.dialects.dialect import ERRORS, Problem

_CLIENTS = ("agent_ref", *NUMBERS)
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """A status and a body of JSON."""

    status: int
    body: bytes

    def response(self) -> web.Response:
        headers = {"retry-after": f"{RETRY_AFTER_S:g}"} if self.status == 503 else None
        return web.Response(
            status=self.status, body=self.body, content_type="application/json", headers=headers
        )


def refused(problem: Problem) -> Answer:
    """The answer to a request that the server refuses."""
    status = ERRORS[problem.kind].status
    # No client of NeMo Gym knows 429: it would take it for a fault of the row. So all that may pass is 503.
    status = 503 if status >= 429 else 422 if problem.kind == "invalid" else status
    return _told(status, problem.message)


def of_error(error: GymError) -> Answer:
    """The answer if the workers could not be asked, or failed."""
    of_the_row = isinstance(error, TaskError | UsageError) and not isinstance(error, NotThereYet)
    return of_fault(error.fault()) if not of_the_row else _told(422, error.message)


def of_fault(fault: Fault) -> Answer:
    """The answer if a rollout failed."""
    where = f"{fault.stage}: " if fault.stage else ""
    return _told(422 if fault.kind == "task" else 503, f"{where}{fault.message or fault.name}")


def _told(status: int, message: str) -> Answer:
    return Answer(status, _encode({"detail": " ".join(message.split())}))


# -- rows, verdicts, metrics ----------------------------------------------------------------------------


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
    """The request's row and response, with the verdict's fields.

    Raises:
        TaskError: the environment trains several seats, and the client has one conversation and one reward.
    """
    if len(verdict.rewards) > 1:
        seats = ", ".join(verdict.rewards)
        what = f"the environment trains the seats {seats}, each with its own conversation"
        raise TaskError(f"{what}: run its agent, with POST /run")
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
