"""One row taken apart for the terminal: what its verdict rests on, and its conversation.

The page does the same (viewer-page/src/row.js). Rows come from models, tools and other programs: any
field may have any type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from gym_runtime.messages.transcripts import (
    ReadableItem,
    as_list,
    as_object,
    as_text,
    content_text,
    readable_items,
)

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


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Why a rollout has its reward.

    Attributes:
        found, expected: fields of the row that hold what the answer was taken to be, and the right one.
        judged: what judges said, by field.
        limits: which stopped it.
        failure: whose fault, where and what, if there is no verdict.
        tool_error: the first answer of a tool that is an error.
        again: why earlier attempts were given up.
    """

    rollout_id: str
    reward: float | None
    outcome: str
    components: dict[str, float]
    found: dict[str, str]
    expected: dict[str, str]
    judged: dict[str, str]
    limits: list[str]
    failure: str
    tool_error: ReadableItem | None
    attempt: int
    again: list[str]
    facts: str


def card(row: Mapping[str, Any]) -> Card:
    """What a row says of its verdict."""
    own, response = as_object(row.get("_gym")), as_object(row.get("response"))
    outcome = as_object(own.get("outcome"))
    fields = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    judged = {name: _said(value) for name, value in fields.items() if _JUDGED.search(name)}
    plain = {name: value for name, value in fields.items() if name not in judged}
    fault = as_object(row.get("_ng_failure")) or as_object(outcome.get("fault"))
    failed = bool(row.get("_ng_failure_class") or fault)
    reward = row.get("reward")
    limits = [outcome.get("reason"), as_object(response.get("incomplete_details")).get("reason")]
    return Card(
        rollout_id=str(own.get("rollout_id") or ""),
        reward=float(reward) if isinstance(reward, (int, float)) and not failed else None,
        outcome="failed" if failed else str(outcome.get("type") or "completed"),
        components={
            name: float(value)
            for name, value in as_object(row.get("reward_components")).items()
            if isinstance(value, (int, float))
        },
        found={name: as_text(value) for name, value in plain.items() if _FOUND.match(name)},
        expected={name: as_text(value) for name, value in plain.items() if _EXPECTED.match(name)},
        judged={name: said for name, said in judged.items() if said},
        limits=list(dict.fromkeys(str(limit) for limit in limits if limit)),
        failure=_failure(row, fault) if failed else "",
        tool_error=next((item for item in readable_items(row) if item.error), None),
        attempt=_number(own.get("attempt")) or _number(row.get("_ng_attempt_index")) + 1,
        again=[str(reason) for reason in as_list(own.get("started_anew"))],
        facts=_facts(own, response),
    )


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


def _failure(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    kind = fault.get("kind") or row.get("_ng_failure_class") or "failed"
    where = f" in {fault['stage']}" if fault.get("stage") else ""
    message = fault.get("message") or row.get("_ng_failure_judge_error") or ""
    return f"{kind}{where}: {message}" if message else f"{kind}{where}"


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
