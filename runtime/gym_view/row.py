"""One row taken apart for the terminal and the page: what its verdict rests on, and where its turns begin.

Rows come from models, tools and other programs: any field may have any type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.messages import ReadableItem, as_list, as_object, as_text, content_text, readable_items

_OWN = {
    "responses_create_params",
    "response",
    "reward",
    "reward_components",
    "agent_ref",
    "_ng_task_index",
    "_ng_rollout_index",
    "_gym",
    "_ng_failure",
    "_ng_failure_class",
    "_ng_failure_terminal",
    "_ng_failure_judge_error",
    "_ng_attempt_index",
}
_FOUND = re.compile(r"^(extracted|predicted|parsed|model_(answer|output|patch)|actual|submitted|choice$)")
_EXPECTED = re.compile(
    r"^(expected|gold|golden|reference|ground_truth|target|correct|solution$|answer$|label$)"
)
_JUDGED = re.compile(r"judge|critique|explanation|rationale|feedback|notes$")
_SHORT_CHARACTERS = 200


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turn of one item of a row's ``response.output``, and its error if it is a tool's."""

    turn: int
    error: str = ""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Why a rollout has its reward.

    Attributes:
        found, expected: fields of the row with the extracted answer, and with the right one.
        judged: what judges said, by field.
        others: further fields of the row that are short.
        limits: which stopped it.
        failed: whose fault and where, if there is no verdict; else empty.
        reason, notes: the failure's message, and its class.
        tool_error: the first answer of a tool that is an error.
        again: why earlier attempts were given up.
        kept: what of earlier attempts went on.
        marks: of each item of ``response.output``.
    """

    rollout_id: str
    reward: float | None
    outcome: str
    components: dict[str, float]
    found: dict[str, str]
    expected: dict[str, str]
    judged: dict[str, str]
    others: dict[str, str]
    limits: list[str]
    failed: str
    reason: str
    notes: str
    tool_error: ReadableItem | None
    attempt: int
    again: list[str]
    kept: list[str]
    facts: str
    marks: list[Mark]

    @property
    def failure(self) -> str:
        """Whose fault, where and what; empty if there is a verdict."""
        return f"{self.failed}: {self.reason}" if self.reason else self.failed


def card(row: Mapping[str, Any]) -> Card:
    """The verdict of a row."""
    own, response = as_object(row.get("_gym")), as_object(row.get("response"))
    outcome = as_object(own.get("outcome"))
    fields = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    judged = {name: _said(value) for name, value in fields.items() if _JUDGED.search(name)}
    plain = {name: as_text(value) for name, value in fields.items() if name not in judged}
    found = {name: text for name, text in plain.items() if _FOUND.match(name)}
    expected = {name: text for name, text in plain.items() if _EXPECTED.match(name)}
    fault = as_object(row.get("_ng_failure")) or as_object(outcome.get("fault"))
    failed = bool(row.get("_ng_failure_class") or fault)
    reward = row.get("reward")
    limits = [
        outcome.get("reason"),
        as_object(response.get("incomplete_details")).get("reason"),
        as_object(response.get("error")).get("message"),
    ]
    items = list(readable_items(row))
    return Card(
        rollout_id=str(own.get("rollout_id") or ""),
        reward=float(reward) if isinstance(reward, (int, float)) and not failed else None,
        outcome="failed" if failed else str(outcome.get("type") or "completed"),
        components={
            name: float(value)
            for name, value in as_object(row.get("reward_components")).items()
            if isinstance(value, (int, float))
        },
        found=found,
        expected=expected,
        judged={name: said for name, said in judged.items() if said},
        others={
            name: text
            for name, text in plain.items()
            if name not in found and name not in expected and len(text) < _SHORT_CHARACTERS
        },
        limits=list(dict.fromkeys(str(limit) for limit in limits if limit)),
        failed=_failed(row, fault) if failed else "",
        reason=as_text(fault.get("message") or row.get("_ng_failure_judge_error") or "") if failed else "",
        notes=_notes(row, fault) if failed else "",
        tool_error=next((item for item in items if item.error), None),
        attempt=_number(own.get("attempt")) or _number(row.get("_ng_attempt_index")) + 1,
        again=[str(reason) for reason in as_list(own.get("started_anew"))],
        kept=[
            f"{count} {what}"
            for field, what in (("resumed_turns", "turns went on"), ("rebuilt_sessions", "sessions rebuilt"))
            if (count := _number(own.get(field)))
        ],
        facts=_facts(own, response),
        marks=[Mark(item.turn, item.error) for item in items if item.turn],
    )


def card_json(line: bytes) -> bytes:
    """The card of a row as JSON; ``null`` if the line is no JSON object."""
    try:
        return msgspec.json.encode(card(msgspec.json.decode(line, type=dict[str, Any])))
    except UNREADABLE:
        return b"null"


def _said(value: Any) -> str:
    """A judge's words: a text, or NeMo Gym's evaluations with the judge's answers in them."""
    if not isinstance(value, list):
        return as_text(value)
    found: list[str] = []
    for each in cast("list[Any]", value):
        one = as_object(each)
        answer = as_list(as_object(one.get("response")).get("output"))
        text = "\n".join(content_text(as_object(item).get("content")) for item in answer) or as_text(each)
        label = one.get("verdict_label") or one.get("verdict") or ""
        found.append(f"{label}: {text}" if label else text)
    return "\n".join(found)


def _failed(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    kind = fault.get("kind") or row.get("_ng_failure_class") or "failed"
    return f"{kind} in {fault['stage']}" if fault.get("stage") else str(kind)


def _notes(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    again = "may be tried again" if fault.get("retryable") is True else ""
    if not again and row.get("_ng_failure_terminal"):
        again = "not tried again"
    notes = (fault.get("name"), row.get("_ng_failure_class"), again)
    return " · ".join(str(note) for note in notes if note)


def _facts(own: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    usage = as_object(response.get("usage"))
    facts = [
        f"{own['turns']} turns" if own.get("turns") else "",
        f"{own['tool_calls']} tool calls" if own.get("tool_calls") else "",
        f"{usage['output_tokens']} tokens out" if usage.get("output_tokens") else "",
        f"{own['duration_s']:g} s" if isinstance(own.get("duration_s"), (int, float)) else "",
        str(response.get("model") or ""),
    ]
    return " · ".join(filter(None, facts))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
