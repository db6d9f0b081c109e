"""One row taken apart for the terminal: what its verdict rests on, and its conversation.

The page does the same (viewer-page/src/row.js). Rows come from models, tools and other programs: any
field may have any type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

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
_ERROR = re.compile(
    r'\s*("?(error|exception|traceback|failed|invalid)\b|[A-Za-z_.]*(Error|Exception)\b)', re.IGNORECASE
)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a conversation.

    Attributes:
        who: ``user``, ``assistant``, ``reasoning``, ``calls NAME``, ``tool answer`` or another item's type.
        turn: 0 for the prompt.
        error: what a tool's answer says went wrong; empty if it did not.
    """

    who: str
    text: str
    turn: int
    error: str = ""


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
    tool_error: Item | None
    attempt: int
    again: list[str]
    facts: str


def card(row: Mapping[str, Any]) -> Card:
    """What a row says of its verdict."""
    own, response = _object(row.get("_gym")), _object(row.get("response"))
    outcome = _object(own.get("outcome"))
    fields = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    judged = {name: _said(value) for name, value in fields.items() if _JUDGED.search(name)}
    plain = {name: value for name, value in fields.items() if name not in judged}
    fault = _object(row.get("_ng_failure")) or _object(outcome.get("fault"))
    failed = bool(row.get("_ng_failure_class") or fault)
    reward = row.get("reward")
    limits = [outcome.get("reason"), _object(response.get("incomplete_details")).get("reason")]
    return Card(
        rollout_id=str(own.get("rollout_id") or ""),
        reward=float(reward) if isinstance(reward, (int, float)) and not failed else None,
        outcome="failed" if failed else str(outcome.get("type") or "completed"),
        components={
            name: float(value)
            for name, value in _object(row.get("reward_components")).items()
            if isinstance(value, (int, float))
        },
        found={name: _text(value) for name, value in plain.items() if _FOUND.match(name)},
        expected={name: _text(value) for name, value in plain.items() if _EXPECTED.match(name)},
        judged={name: said for name, said in judged.items() if said},
        limits=list(dict.fromkeys(str(limit) for limit in limits if limit)),
        failure=_failure(row, fault) if failed else "",
        tool_error=next((item for item in conversation(row) if item.error), None),
        attempt=_number(own.get("attempt")) or _number(row.get("_ng_attempt_index")) + 1,
        again=[str(reason) for reason in _list(own.get("started_anew"))],
        facts=_facts(own, response),
    )


def conversation(row: Mapping[str, Any]) -> Iterator[Item]:
    """The prompt's items, then what the model and its tools said."""
    params = _object(row.get("responses_create_params"))
    if params.get("instructions"):
        yield Item(who="system", text=_text(params["instructions"]), turn=0)
    given = params.get("input")
    if isinstance(given, str):
        yield Item(who="user", text=given, turn=0)
    for item in _list(given):
        yield _item(_object(item), 0)
    turn, answered = 1, False
    for each in _list(_object(row.get("response")).get("output")):
        item = _object(each)
        ours = item.get("type") != "function_call_output" and item.get("role") in (None, "assistant")
        turn += ours and answered
        answered = "generation_token_ids" in item if ours else True
        yield _item(item, turn)


def _item(item: Mapping[str, Any], turn: int) -> Item:
    kind = item.get("type") or "message"
    if kind == "message":
        return Item(who=str(item.get("role") or "assistant"), text=_content(item.get("content")), turn=turn)
    if kind == "reasoning":
        text = "\n".join(filter(None, (_content(item.get("content")), _content(item.get("summary")))))
        return Item(who="reasoning", text=text, turn=turn)
    if kind == "function_call":
        return Item(who=f"calls {item.get('name')}", text=_text(item.get("arguments")), turn=turn)
    if kind == "function_call_output":
        said = _content(item.get("output"))
        return Item(who="tool answer", text=said, turn=turn, error=tool_error(said))
    return Item(who=str(kind), text=_text(item), turn=turn)


def tool_error(said: str) -> str:
    """What went wrong, if a tool's answer is an error, as tools usually say so; else nothing."""
    if said.lstrip().startswith("{"):
        try:
            answer = msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.DecodeError:
            return ""
        error = answer.get("error") or answer.get("Error") or answer.get("errors")
        if not error and (answer.get("success") is False or answer.get("status") == "error"):
            error = answer.get("message") or "not successful"
        return _first_line(_text(error)) if error else ""
    return _first_line(said) if _ERROR.match(said) else ""


def _content(content: Any) -> str:
    """The text of a message's content; other parts by their type."""
    if content is None or isinstance(content, str):
        return content or ""
    found: list[str] = []
    for part in _list(content):
        if isinstance(part, str):
            found.append(part)
            continue
        fields = _object(part)
        text = fields.get("text") or fields.get("refusal")
        found.append(text if isinstance(text, str) else f"[{fields.get('type', 'part')}]")
    return "".join(found) if isinstance(content, list) else _text(content)


def _said(value: Any) -> str:
    """A judge's words: a text, or NeMo Gym's evaluations with the judge's answers in them."""
    if not isinstance(value, list):
        return _text(value)
    found: list[str] = []
    for each in cast("list[Any]", value):
        one = _object(each)
        answer = _list(_object(one.get("response")).get("output"))
        text = "\n".join(_content(_object(item).get("content")) for item in answer) or _text(each)
        label = one.get("verdict_label") or one.get("verdict") or ""
        found.append(f"{label}: {text}" if label else text)
    return "\n".join(found)


def _failure(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    kind = fault.get("kind") or row.get("_ng_failure_class") or "failed"
    where = f" in {fault['stage']}" if fault.get("stage") else ""
    message = fault.get("message") or row.get("_ng_failure_judge_error") or ""
    return f"{kind}{where}: {message}" if message else f"{kind}{where}"


def _facts(own: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    usage = _object(response.get("usage"))
    facts = [
        f"{own['turns']} turns" if own.get("turns") else "",
        f"{own['tool_calls']} tool calls" if own.get("tool_calls") else "",
        f"{usage['output_tokens']} tokens out" if usage.get("output_tokens") else "",
        f"{own['duration_s']:g} s" if isinstance(own.get("duration_s"), (int, float)) else "",
        str(response.get("model") or ""),
    ]
    return " · ".join(filter(None, facts))


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:300]
