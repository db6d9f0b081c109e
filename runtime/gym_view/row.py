"""One row taken apart for the terminal and the page: what its verdict rests on, and where its turns begin.

Rows come from models, tools and other programs: any field may have any type.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from gym_runtime.errors import UNREADABLE
from gym_runtime.files import image_urls
from gym_runtime.messages import ReadableItem, as_list, as_object, as_text, content_text, readable_items
from gym_runtime.plurals import counted

from gym_view.vocabulary import Vocabulary

OWN = {
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
"""The runtime's and NeMo Gym's own fields of a row."""
_FOUND = re.compile(r"^(extracted|predicted|parsed|model_(answer|output|patch)|actual|submitted|choice$)")
_EXPECTED = re.compile(
    r"^(expected|gold|golden|reference|ground_truth|target|correct|solution$|answer$|label$)"
)
_JUDGED = re.compile(r"judge|critique|explanation|rationale|feedback|notes$")
_SHORT_CHARACTERS = 200


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turn of one item of a row's ``response.output``, and its error if it is a tool's.

    ``tokens`` are the texts of its sampled tokens, if the viewer has the model's vocabulary.
    """

    turn: int
    error: str = ""
    tokens: list[str] = []


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a role, its question, as far as the row has it, and its answer.

    ``label`` is what the verifier read out of the answer; None if the row says that it read nothing, empty if
    it does not say.
    """

    role: str
    question: str
    answer: str
    label: str | None = ""


class ForkedFrom(msgspec.Struct, frozen=True):
    """Where a fork begins.

    Attributes:
        run: the run of the rollout that was forked; empty if its row did not say.
        turn: how many turns are shared.
        changed: what the fork changed.
        differed: the shared turns after which the environment answered differently.
    """

    run: str
    task: int
    rollout: int
    turn: int
    changed: list[str]
    differed: list[int]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Why a rollout has its reward.

    Attributes:
        found, expected: fields of the row with the extracted answer, None where the verifier found nothing,
            and with the right one.
        asked: models in roles, in the order of their questions; what a simulated user said is in the
            transcript.
        judged: other words about the answer, by field.
        others: further fields of the row that are short.
        limits: which stopped it.
        failed: whose fault and where, if there is no verdict; else empty.
        reason, notes: the failure's message, and its class.
        tool_error: the first answer of a tool that is an error.
        again: why earlier attempts were given up.
        kept: what of earlier attempts went on.
        fork: the rollout with whose turns it begins; None for no fork.
        marks: of each item of ``response.output``.
        images: those that are files beside the row's file, as ``data:`` URLs by their paths in the row.
    """

    rollout_id: str
    reward: float | None
    outcome: str
    components: dict[str, float]
    found: dict[str, str | None]
    expected: dict[str, str]
    asked: list[Asked]
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
    fork: ForkedFrom | None
    marks: list[Mark]
    images: dict[str, str] = {}

    @property
    def failure(self) -> str:
        """Whose fault, where and what; empty if there is a verdict."""
        return f"{self.failed}: {self.reason}" if self.reason else self.failed


def card(row: Mapping[str, Any], vocabulary: Vocabulary | None = None) -> Card:
    """The verdict of a row; with a ``vocabulary`` also the texts of its tokens."""
    own, response = as_object(row.get("_gym")), as_object(row.get("response"))
    outcome = as_object(own.get("outcome"))
    fields = {name: value for name, value in row.items() if name not in OWN and value is not None}
    judged = {name: value for name, value in fields.items() if _JUDGED.search(name)}
    plain = {name: as_text(value) for name, value in fields.items() if name not in judged}
    found = {
        name: None if value is None else as_text(value)
        for name, value in row.items()
        if _FOUND.match(name) and name not in judged
    }
    expected = {name: text for name, text in plain.items() if _EXPECTED.match(name)}
    fault = as_object(row.get("_ng_failure")) or as_object(outcome.get("fault"))
    failed = bool(row.get("_ng_failure_class") or fault)
    limits = [
        outcome.get("reason"),
        as_object(response.get("incomplete_details")).get("reason"),
        as_object(response.get("error")).get("message"),
    ]
    items = list(readable_items(row))
    return Card(
        rollout_id=str(own.get("rollout_id") or ""),
        reward=None if failed else _float(row.get("reward")),
        outcome="failed" if failed else str(outcome.get("type") or "completed"),
        components={
            name: number
            for name, value in as_object(row.get("reward_components")).items()
            if (number := _float(value)) is not None
        },
        found=found,
        expected=expected,
        asked=_asked(own, judged, {item.text for item in items if item.who == "user"}),
        judged={
            name: as_text(value) for name, value in judged.items() if value and not isinstance(value, list)
        },
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
            counted(count, f"{one} {what}", f"{one}s {what}")
            for field, one, what in (
                ("resumed_turns", "turn", "went on"),
                ("rebuilt_sessions", "session", "rebuilt"),
                ("repeated_calls", "call", "repeated"),
            )
            if (count := _number(own.get(field)))
        ],
        facts=_facts(own, response),
        fork=_fork(own.get("fork")),
        marks=[
            Mark(item.turn, item.error, _token_texts(each, vocabulary))
            for item, each in zip(
                (item for item in items if item.turn), as_list(response.get("output")), strict=True
            )
        ],
    )


def card_json(line: bytes, vocabulary: Vocabulary | None = None, folder: Path | None = None) -> bytes:
    """The card of a row as JSON, as `card`; ``null`` if the line is no JSON object.

    With the ``folder`` of the row's file, the card has the images that are beside it.
    """
    try:
        made = card(msgspec.json.decode(line, type=dict[str, Any]), vocabulary)
        images = {} if folder is None else image_urls(line, folder)
        return msgspec.json.encode(msgspec.structs.replace(made, images=images))
    except UNREADABLE:
        return b"null"


def _asked(own: Mapping[str, Any], judged: Mapping[str, Any], transcript: set[str]) -> list[Asked]:
    """What ``_gym`` has recorded of roles, and NeMo Gym's evaluations, which may be of the same answers."""
    evaluations: list[Asked] = []
    for name, each in ((name, each) for name, value in judged.items() for each in as_list(value)):
        one = as_object(each)
        label = next((one[field] for field in ("verdict_label", "verdict") if field in one), "")
        evaluations.append(
            Asked(
                role=name.replace("_", " "),
                question=_question(as_object(one.get("responses_create_params"))),
                answer=_answer(one) if "response" in one else as_text(each),
                label=None if label is None else as_text(label),
            )
        )
    labels = {one.answer: one.label for one in evaluations}
    questions: dict[str, str] = {}
    recorded: list[Asked] = []
    for each in as_list(own.get("role_answers")):
        one = as_object(each)
        digest, answer = str(one.get("digest")), _answer(one)
        questions.setdefault(digest, as_text(one.get("question") or ""))
        if answer not in transcript:
            label = labels.get(answer, "")
            role = str(one.get("role") or "")
            recorded.append(Asked(role=role, question=questions[digest], answer=answer, label=label))
    known = {one.answer: one.question for one in evaluations}
    found = {one.answer for one in recorded}
    return [
        *(
            msgspec.structs.replace(one, question=one.question or known.get(one.answer, ""))
            for one in recorded
        ),
        *(one for one in evaluations if one.answer not in found),
    ]


def _token_texts(item: object, vocabulary: Vocabulary | None) -> list[str]:
    ids = as_list(as_object(item).get("generation_token_ids"))
    return [] if vocabulary is None else vocabulary.texts(ids)


def _question(params: Mapping[str, Any]) -> str:
    given = params.get("input")
    last = given if isinstance(given, str) else next(reversed(as_list(given)), None)
    return last if isinstance(last, str) else content_text(as_object(last).get("content"))


def _answer(one: Mapping[str, Any]) -> str:
    items = as_list(as_object(one.get("response")).get("output"))
    return "\n".join(filter(None, (content_text(as_object(item).get("content")) for item in items)))


def _failed(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    kind = fault.get("kind") or row.get("_ng_failure_class") or "failed"
    return f"{kind} in {fault['stage']}" if fault.get("stage") else str(kind)


def _notes(row: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    again = "may be tried again" if fault.get("retryable") is True else ""
    if not again and row.get("_ng_failure_terminal"):
        again = "not tried again"
    notes = (fault.get("name"), row.get("_ng_failure_class"), again)
    return " · ".join(str(note) for note in notes if note)


def _fork(value: object) -> ForkedFrom | None:
    fork = as_object(value)
    if not fork:
        return None
    return ForkedFrom(
        run=str(fork.get("rollout_id") or "").partition(".")[0],
        task=_number(fork.get("task_index")),
        rollout=_number(fork.get("rollout_index")),
        turn=_number(fork.get("turn")),
        changed=[str(name) for name in as_list(fork.get("changed"))],
        differed=[_number(turn) for turn in as_list(fork.get("differed"))],
    )


def _facts(own: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    usage = as_object(response.get("usage"))
    facts = [
        _plural(own.get("turns"), "turn"),
        _plural(own.get("tool_calls"), "tool call"),
        f"{tokens} out" if (tokens := _plural(usage.get("output_tokens"), "token")) else "",
        f"{seconds:.3g} s" if (seconds := _float(own.get("duration_s"))) is not None else "",
        str(response.get("model") or ""),
    ]
    return " · ".join(filter(None, facts))


def _plural(value: Any, one: str) -> str:
    return counted(number, one) if (number := _number(value)) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _float(value: Any) -> float | None:
    """A number; None for anything else, and for an integer that no double holds."""
    with contextlib.suppress(OverflowError):
        return float(value) if isinstance(value, (int, float)) else None
    return None
