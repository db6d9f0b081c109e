"""A row as the makers of replies see it: its perfect rollout, and where the answer is in it.

The answer is looked for in the last text of the perfect rollout: a box, a tag, ``Answer: …``, a fenced block,
or the value of a field of the row. Prose in which no answer is found has none, and gets no near misses.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, cast

import msgspec
from gym_runtime.environment import Example
from gym_runtime.messages import Message, decode_items
from msgspec import Raw

ANSWER_FIELDS = (
    "expected_answer",
    "expected",
    "answer",
    "ground_truth",
    "ideal",
    "target",
    "gold_answer",
    "solution",
    "goal",
)
"""Fields of a row that may hold its answer, as datasets call them."""
TAGS = ("answer", "solution", "final_answer", "action", "score")
LETTERS = "ABCDEFGHIJ"
FORMS = ("boxed", "tag", "line", "code", "sql", "json", "patch", "field", "whole")
"""What the answer may stand in: `Span.form`."""
KINDS = (
    *("text", "calls", "number", "choice", "schema", "prose", *FORMS),
    *("judge", "verify", "session", "episode"),
)
"""What `Target.kinds` may hold: what the row has, the form of its answer; what its environment is."""

_ANSWER_LINE = re.compile(r"(?i)\banswer(?: is)?[:\s*]{1,4}\(?([^\n*)]{1,200}?)[)*.]*[ \t]*$", re.MULTILINE)
_LATEX_TEXT = re.compile(r"\s*\\text\{([^{}]*)\}\s*")
_QUERY = re.compile(r"(?i)\s*(SELECT\b[^.]|WITH\s+\w+\s+AS\b)")
_PROGRAM = re.compile(r"(?m)^(?:async )?def \w+\(|^class \w+[(:]|^import \w|^print\(")
_FENCE = re.compile(r"```([a-zA-Z0-9_+-]*)\n(.*?)\n?```", re.DOTALL)
_decode_params = msgspec.json.Decoder(dict[str, Raw]).decode


class Span(msgspec.Struct, frozen=True):
    """Where the answer is in a text.

    Attributes:
        form: one of `FORMS`.
        begin, close: where the form begins and ends, such as ``\\boxed{`` and ``}`` round the answer.
    """

    start: int
    end: int
    form: str
    begin: int
    close: int


class Target:
    """A row and its perfect rollout.

    Attributes:
        row: the row's fields, without ``gold`` and ``responses_create_params``.
        others: other rows of the same data, whose golds are wrong here.
        turns: the perfect rollout, turn by turn, as in an example row's ``gold``.
    """

    def __init__(self, example: Example, others: Sequence[Target] = (), traits: frozenset[str] = frozenset()):
        self.example = example
        self.others = others
        self.turns = example.turns
        self.row = {
            name: value
            for name, value in example.fields.items()
            if name not in ("gold", "responses_create_params", "agent_ref")
        }
        self._traits = traits

    @cached_property
    def text(self) -> str:
        """The last text of the perfect rollout; empty if it ends with something else."""
        last = self.turns[-1][-1] if self.turns and self.turns[-1] else ""
        return last if isinstance(last, str) else ""

    @cached_property
    def span(self) -> Span | None:
        """Where the answer is in `text`; None if there is none to be found."""
        return _span(self.text, self.row) if self.text else None

    @property
    def answer(self) -> str:
        """The answer within the perfect rollout's text; empty if there is none to be found."""
        return self.text[self.span.start : self.span.end] if self.span else ""

    @cached_property
    def number(self) -> Decimal | None:
        """The answer as a number; None if it is none."""
        return as_number(self.answer)

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """The function calls of the perfect rollout, in order."""
        found: list[dict[str, Any]] = []
        for turn in self.turns:
            found += [item for item in turn if isinstance(item, dict) and item.get("type") == "function_call"]
        return found

    @cached_property
    def options(self) -> list[str]:
        """The letters of a choice; empty if the answer is no letter."""
        if not re.fullmatch("[A-J]", self.answer.strip()):
            return []
        raw: Any = self.row.get("options") or self.row.get("choices")
        if isinstance(raw, list) and raw and all(isinstance(one, dict) for one in cast("list[Any]", raw)):
            keys = [str(key) for one in cast("list[dict[str, Any]]", raw) for key in one]
            letters = [key for key in keys if key in LETTERS]
        else:
            count = len(cast("Sequence[Any]", raw)) if isinstance(raw, list | dict) else 4
            letters = list(LETTERS[:count])
        return letters if self.answer.strip() in letters else list(LETTERS[:4])

    @cached_property
    def kinds(self) -> frozenset[str]:
        """What kinds of verifier this row may meet: those of its answer's form, and of its environment."""
        found = {*self._traits, self.span.form if self.span else "prose"}
        found |= {"calls"} if self.calls else {"text"}
        if self.number is not None:
            found.add("number")
        if self.options:
            found.add("choice")
        if any("schema" in name for name in self.row):
            found.add("schema")
        if "diff --git" in self.text or "<<<<<<< SEARCH" in self.text:
            found.add("patch")
        if _is_json(self.answer):
            found.add("json")
        if _QUERY.match(self.answer):
            found.add("sql")
        return frozenset(found)

    @property
    def structured(self) -> bool:
        """Whether the answer is no word or number, but JSON, a program, a query or a patch."""
        return bool(self.kinds & {"json", "code", "sql", "patch"})

    @cached_property
    def exact(self) -> bool:
        """Whether the row holds this very answer, so that another text is another answer."""
        own = self.answer.strip()
        return any(
            isinstance(value, str | int | float) and str(value).strip() == own for value in self.row.values()
        )

    @cached_property
    def schema(self) -> Any:
        """The JSON schema that the row has; None if it has none."""
        for name, value in self.row.items():
            if "schema" in name:
                read = _read(value) if isinstance(value, str) else value
                if isinstance(read, dict) and ("properties" in read or "type" in read):
                    return cast("dict[str, Any]", read)
        return None

    @cached_property
    def expectation(self) -> str:
        """The row's own fields as one JSON text: what of a call stands here is what the row demands."""
        return json.dumps(self.row, ensure_ascii=False).replace('\\"', '"')

    @cached_property
    def prompt(self) -> str:
        """The text of the last message that the model reads."""
        return self._messages("user")

    @cached_property
    def system(self) -> str:
        """The text of the system message; empty if there is none."""
        return self._messages("system") or self._messages("developer")

    def _messages(self, role: str) -> str:
        params = _decode_params(self.example.row).get("responses_create_params", b"{}")
        given: Any = cast("Mapping[str, Any]", msgspec.json.decode(params)).get("input", [])
        if isinstance(given, str):
            return given if role == "user" else ""
        items = decode_items([Raw(msgspec.json.encode(item)) for item in cast("list[Any]", given)])
        texts = [item.text for item in items if isinstance(item, Message) and item.role == role]
        return texts[-1] if texts else ""

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The row's function tools, by name."""
        params: Any = self.example.fields.get("responses_create_params") or {}
        listed: list[Any] = params.get("tools") or []
        return {tool["name"]: tool for tool in listed if isinstance(tool, dict) and "name" in tool}

    def with_answer(self, answer: str) -> list[list[Any]]:
        """The perfect rollout with another answer in the same place.

        If the text round the answer has it too, that text is left out: else the answer could be found there.
        """
        span = self.span
        assert span is not None
        before, after = self.text[: span.start], self.text[span.end :]
        if self.answer.strip() and self.answer.strip() in self.text[: span.begin] + self.text[span.close :]:
            before, after = self.text[span.begin : span.start], self.text[span.end : span.close]
        return self.with_text(before + answer + after)

    def with_text(self, text: str) -> list[list[Any]]:
        """The perfect rollout with another last text."""
        return [*self.turns[:-1], [*self.turns[-1][:-1], text]]

    def with_calls(self, calls: Sequence[dict[str, Any] | None]) -> list[list[Any]]:
        """The perfect rollout with other calls in the places of its own; None leaves one out."""
        left = iter(calls)
        turns: list[list[Any]] = []
        for turn in self.turns:
            items: list[Any] = [
                next(left) if isinstance(item, dict) and item.get("type") == "function_call" else item
                for item in turn
            ]
            turns.append([item for item in items if item is not None])
        return [turn for turn in turns if turn] or [[""]]


def as_number(text: str) -> Decimal | None:
    """A plain decimal number, perhaps with commas between thousands.

    >>> as_number("1,266"), as_number("-0.5"), as_number("x")
    (Decimal('1266'), Decimal('-0.5'), None)
    """
    bare = text.strip().strip("$").replace(",", "") if re.fullmatch(r"[-\d,.$ ]{1,40}", text) else ""
    try:
        return Decimal(bare)
    except InvalidOperation:
        return None


def _span(text: str, row: Mapping[str, Any]) -> Span | None:
    found = _boxed(text) or _tagged(text) or _fenced(text)
    if found is None and _is_json(text):
        found = _whole(text, "json")
    if found is None and _QUERY.match(text):
        found = _whole(text, "sql")
    if found is None and _PROGRAM.search(text) and _is_program(text):
        found = _whole(text, "code")
    if found is None and text.lstrip().startswith("diff --git"):
        found = _whole(text, "patch")
    if found is not None:
        return found
    field, line = _of_a_field(text, row), _answer_line(text)
    alike = field and line and text[field.start : field.end] == text[line.start : line.end]
    return line if alike and field and field.form == "field" else field or line


def _boxed(text: str) -> Span | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin - 1, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            inner = _LATEX_TEXT.fullmatch(text, begin, place)
            within = inner.span(1) if inner else (begin, place)
            return Span(*within, "boxed", start, place + 1)
    return None


def _tagged(text: str) -> Span | None:
    for tag in TAGS:
        start, end = text.rfind(f"<{tag}>"), text.rfind(f"</{tag}>")
        if 0 <= start < end and len(text[start:end]) < 2000:
            return Span(start + len(tag) + 2, end, "tag", start, end + len(tag) + 3)
    return None


def _fenced(text: str) -> Span | None:
    for block in reversed(list(_FENCE.finditer(text))):
        language = block[1].lower()
        form = {
            "python": "code",
            "py": "code",
            "sql": "sql",
            "sqlite": "sql",
            "json": "json",
            "diff": "patch",
        }.get(language)
        if form:
            return Span(*block.span(2), form, *block.span())
    return None


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    return _read(text) is not None


def _is_program(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(text: str, form: str) -> Span:
    return Span(len(text) - len(text.lstrip()), len(text.rstrip()), form, 0, len(text))


def _of_a_field(text: str, row: Mapping[str, Any]) -> Span | None:
    """The last place of a field's value, as their own words."""
    values = [value for value in row.values() if isinstance(value, str) and value == text.strip()]
    if values:
        return _whole(text, "whole")
    for name in ANSWER_FIELDS:
        value: Any = row.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            places = list(re.finditer(rf"(?<!\w){re.escape(str(value).strip())}(?!\w)", text))
            if places:
                return Span(*places[-1].span(), "field", *places[-1].span())
    return None


def _answer_line(text: str) -> Span | None:
    found = list(_ANSWER_LINE.finditer(text))
    return Span(*found[-1].span(1), "line", *found[-1].span()) if found else None
