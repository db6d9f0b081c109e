"""A stored row: what re-verification reads of it, and the row with its new verdict."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from gym_runtime import Episode, Pending, Verdict
from gym_runtime.environment import LoadedEnvironment, RoleAnswers, RoleLog
from gym_runtime.errors import Fault, TaskError
from gym_runtime.messages import RoleAnswer
from msgspec import Raw

TOLERANCE = 1e-9
FILE_LINE = "_reverify_line"
_OF_A_FAILURE = {
    "_ng_failure_class",
    "_ng_failure_terminal",
    "_ng_failure_judge_error",
    "_ng_failure",
    FILE_LINE,
}
"""Fields that a failures file adds to a row; they are removed when the row gets a verdict."""

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def without_input(row: bytes) -> bytes:
    """A checked row as an environment that reads no input gets it, if it is long."""
    fields = _decode_fields(row)
    params = _decode_fields(fields["responses_create_params"])
    return _encode({**fields, "responses_create_params": {**params, "input": []}})


class ReverifiedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row with its new verdict.

    Attributes:
        row: the stored row, completed from its input, its ``reward`` and the verifier's fields replaced,
            ``_previous_reward`` added.
        previous_reward: the stored reward; None if the row had none.
        where: ``file:line`` for a row of a file.
    """

    row: Raw
    reward: float
    previous_reward: float | None
    where: str = ""

    @property
    def changed(self) -> bool:
        return self.previous_reward is None or abs(self.reward - self.previous_reward) > TOLERANCE


class RejectedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored row that could not be judged.

    Attributes:
        where: ``file:line``, and ``:column`` for broken JSON.
        line: its number in the file, from 1.
        row: the row; None if it is not a JSON object.
    """

    where: str
    line: int
    fault: Fault
    row: Raw | None


class Named(msgspec.Struct):
    agent_ref: dict[str, Any] | None = None

    @property
    def ref(self) -> str | None:
        name = (self.agent_ref or {}).get("name")
        return name if isinstance(name, str) else None


class _Own(msgspec.Struct, frozen=True):
    role_answers: list[RoleAnswer] = []
    role_sampling: dict[str, dict[str, Any]] = {}
    seat: str = ""
    rewards: dict[str, float] = {}


class Stored(Named, kw_only=True):
    """The fields of a row that re-verification reads."""

    response: Raw
    reward: float | bool | None = None
    own: _Own = msgspec.field(default=_Own(), name="_gym")


decode_named = msgspec.json.Decoder(Named).decode
decode_stored = msgspec.json.Decoder(Stored, strict=False).decode


def require_all_moves(environment: LoadedEnvironment, stored: Stored) -> None:
    """
    Raises:
        TaskError: the moves of several seats made the rollout, and its row has the words of one alone.
    """
    kind, own = environment.resource.session_type, stored.own
    repeats_moves = issubclass(kind, Episode) and not kind.judged_by_transcript
    if repeats_moves and own.seat and len(own.rewards) != 1:
        raise TaskError(f"several seats moved, and the row has the words of '{own.seat}' alone")


class Read(NamedTuple):
    """A stored row that was verified again."""

    environment: LoadedEnvironment
    row: bytes
    filled: bytes
    stored: Stored
    answers: RoleAnswers
    verdict: Verdict | Pending

    def judged(self, verdict: Verdict, compared: RoleLog | None = None) -> ReverifiedRow:
        """The row with a verdict.

        Args:
            compared: what models were asked for the comparison of its group, if they were.
        """
        stored_fields = _decode_fields(self.row).items()
        fields: dict[str, Any] = {name: value for name, value in stored_fields if name not in _OF_A_FAILURE}
        fields |= {"reward": verdict.reward, **verdict.fields}
        if verdict.components:
            fields["reward_components"] = verdict.components
        own: dict[str, Any] = {"rewards": verdict.rewards} if verdict.rewards else {}
        if self.answers.asked or compared is not None:
            log = RoleLog(self.answers.log.answers, self.answers.log.use)
            log.extend(compared or RoleLog())
            own |= {"roles": log.use, "role_answers": log.answers}
        if own:
            fields["_gym"] = {**_decode_fields(fields.get("_gym", b"{}")), **own}
        previous = None if self.stored.reward is None else float(self.stored.reward)
        fields["_previous_reward"] = previous
        return ReverifiedRow(row=Raw(_encode(fields)), reward=verdict.reward, previous_reward=previous)
