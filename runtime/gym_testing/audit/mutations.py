"""Mutations of perfect rollouts: near misses, which are wrong, and other forms of the same answer.

A near miss that may be right after all, such as a changed constant of a program, is marked ``suspect``; so is
another form that a strict rule may refuse by intention.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

from gym_testing.audit.exploits import wrong_answer
from gym_testing.audit.registry import Reply, Suspect, near_miss, same_answer
from gym_testing.audit.target import Target

Made = Iterator[Reply | Suspect]

# -- near misses --------------------------------------------------------------------------------------


@near_miss("number")
def wrong_numbers(target: Target) -> Made:
    """The first digit changed, the last digit changed, another sign, ten times as much, a digit more."""
    number = target.number
    assert number is not None
    own = format(number, "f")
    first = next((place for place, digit in enumerate(own) if digit in "123456789"), 0)
    for text in (_other_digit(own, first), format(-number, "f"), format(number * 10, "f")):
        if Decimal(text) != number:
            yield target.with_answer(text)
    tolerated = "." in own or "tol" in target.expectation
    for text in (_other_digit(own, len(own) - 1), own + "9"):
        yield (target.with_answer(text), "suspect") if tolerated else target.with_answer(text)
    if "." not in own:
        yield target.with_answer(f"{own}.5"), "suspect"
    if number:
        yield target.with_answer(f"1/{own}") if abs(number) != 1 else target.with_answer("1/2")
    yield target.with_answer(f"{own}%"), "suspect"
    yield target.with_answer(f"{own}i")


@near_miss("boxed")
def wrong_expressions(target: Target) -> Made:
    """One digit, one operator or one element of an answer that is no plain number."""
    own = target.answer
    if target.number is not None or target.options:
        return
    digits = [place for place, one in enumerate(own) if one.isascii() and one.isdigit()]
    if digits:
        yield target.with_answer(_other_digit(own, digits[0]))
        yield target.with_answer(_other_digit(own, digits[-1]))
    for old, new in (
        (r"\+", "-"),
        (r"\\sin\b", r"\\cos"),
        (r"(?<![\\A-Za-z])[xn](?![A-Za-z])", "y"),
        (r"\\pi\b", ""),
    ):
        changed = re.sub(old, new, own, count=1)
        if changed != own:
            yield target.with_answer(changed)
    parts = re.split(r"(?<!\\),", own.strip("{}()[]")) if len(own) < 200 else []
    if len(parts) > 1:
        yield target.with_answer(own.replace("," + parts[-1], "", 1))


@near_miss("choice")
def other_options(target: Target) -> Made:
    """Each other option."""
    for letter in target.options:
        if letter != target.answer.strip():
            yield target.with_answer(letter)


@near_miss("whole")
@near_miss("field")
@near_miss("line")
@near_miss("tag")
def wrong_words(target: Target) -> Made:
    """Another answer; the answer without a word, without its end, reversed, or longer."""
    own = target.answer.strip()
    if target.options or len(own) > 200:
        return
    if "episode" in target.kinds and own not in target.expectation:
        return  # one of several moves that may win
    yield target.with_answer(wrong_answer(target))
    if target.number is not None:
        return
    certain = target.span is not None and target.span.form == "whole"
    changed = [own[:-1], own[1:], own[::-1], f"{own}x", f"{own} not", own[: len(own) // 2]]
    if " " in own:
        changed += [own.rsplit(" ", 1)[0], own.split(" ", 1)[1]]
    for text in dict.fromkeys(changed):
        if text.strip() and text != own:
            yield target.with_answer(text) if certain else (target.with_answer(text), "suspect")


@near_miss("text")
def cut_off(target: Target) -> Made:
    """The reply without its end, from before the answer on."""
    if (
        target.span is not None
        and target.span.form in ("boxed", "tag", "line")
        and "episode" not in target.kinds
    ):
        before = target.text[: target.span.start]
        reply = target.with_text(before)
        yield (reply, "suspect") if target.answer.strip() in before else reply
    if target.span is not None and target.span.form in ("json", "code", "sql") and len(target.answer) > 20:
        yield target.with_answer(target.answer[: len(target.answer) // 2])


@near_miss("json")
def wrong_json(target: Target) -> Made:
    """A key less, a key more, a value of another type, a value changed, an element less."""
    try:
        wanted = json.loads(target.answer)
    except ValueError:
        return
    # A value is certainly wrong only where the row expects this very value.
    exact = any(value == wanted for value in target.row.values())
    strict = '"additionalProperties": false' in target.expectation
    for what, value in _json_mutants(wanted):
        certain = exact or (what == "more" and strict) or (what == "type" and "schema" in target.kinds)
        reply = target.with_answer(json.dumps(value, ensure_ascii=False))
        yield reply if certain else (reply, "suspect")


@near_miss("code")
def wrong_programs(target: Target) -> Made:
    """A program whose functions return nothing; each of ten comparisons, operators and constants changed."""
    try:
        tree = ast.parse(target.answer)
    except (SyntaxError, ValueError, RecursionError):
        return
    hollow = ast.parse(target.answer)
    functions = [node for node in ast.walk(hollow) if isinstance(node, ast.FunctionDef)]
    for node in functions:
        node.body = [ast.Return(ast.Constant(None))]
    if functions:
        yield target.with_answer(_unparsed(hollow))
    places = [node for node in ast.walk(tree) if _mutable(node)]
    step = max(1, len(places) // 8)
    for number in range(0, len(places), step):
        mutant = ast.parse(target.answer)
        _mutate([node for node in ast.walk(mutant) if _mutable(node)][number])
        yield target.with_answer(_unparsed(mutant)), "suspect"


@near_miss("sql")
def wrong_queries(target: Target) -> Made:
    """A condition, a grouping or all rows taken away; comparisons and aggregates changed."""
    own = target.answer.strip().rstrip(";")
    yield target.with_answer(f"SELECT * FROM ({own}) WHERE 1=0"), "suspect"  # right where the result is empty
    yield target.with_answer(f"SELECT 'wibble' FROM ({own})")
    for pattern, new in (
        (r"(?i)\bWHERE\b", "WHERE 1=1 OR"), (r">=", ">"), (r"<=", "<"), (r"(?i)\bSUM\(", "COUNT("),
        (r"(?i)\bDISTINCT\b", ""), (r"(?i)\bDESC\b", "ASC"), (r"(?i)\bAND\b", "OR"), (r"(?i)\bMAX\(", "MIN("),
    ):  # fmt: skip
        changed = re.sub(pattern, new, own, count=1)
        if changed != own:
            yield target.with_answer(changed), "suspect"


@near_miss("calls")
def wrong_calls(target: Target) -> Made:
    """A call less, a call twice, another tool, an argument changed, left out or of another type.

    Where a session has further calls that nothing demands, a change of these is no mistake: it is suspect.
    """
    calls = target.calls
    whole = "session" not in target.kinds and "episode" not in target.kinds
    if whole:
        yield target.with_calls([*calls[:-1], {**calls[-1], "name": f"{calls[-1]['name']}_x"}])
        last = [item for item in target.turns[-1] if item]
        yield [*target.turns[:-1], [*last, {**calls[-1], "call_id": "call_again"}]]
    if len(calls) > 1:
        yield target.with_calls(calls[::-1]), "suspect"
    for place, call in enumerate(calls[:8]):
        names = (call["name"], call["name"].replace("_", "."))
        demanded = any(f'"{name}"' in target.expectation for name in names)

        def without(new: dict[str, Any] | None, place: int = place) -> list[list[Any]]:
            return target.with_calls([*calls[:place], new, *calls[place + 1 :]])

        if len(calls) > 1:
            yield without(None) if demanded else (without(None), "suspect")
        for name in list(target.tools)[:2]:
            if name != call["name"]:
                yield (
                    without({**call, "name": name})
                    if demanded
                    else (without({**call, "name": name}), "suspect")
                )
        arguments = _arguments(call)
        for name, value in list(arguments.items())[:6]:
            shown = json.dumps(value, ensure_ascii=False).replace('\\"', '"')
            sure = demanded and shown in target.expectation
            for changed in (*_other_values(value),):
                new = without({**call, "arguments": json.dumps({**arguments, name: changed})})
                yield new if sure else (new, "suspect")
            less = {key: one for key, one in arguments.items() if key != name}
            yield without({**call, "arguments": json.dumps(less)}), "suspect"


# -- the same answer in other forms -------------------------------------------------------------------


@same_answer("text")
def white_space(target: Target) -> Made:
    """Blanks and empty lines round the reply, and lines that end as on Windows."""
    sure = target.span is not None
    for text in (f"{target.text}\n", f"\n\n{target.text}", f"{target.text}  "):
        yield target.with_text(text) if sure else (target.with_text(text), "suspect")
    yield target.with_text(target.text.replace("\n", "\r\n")), "suspect"


@same_answer("text")
def unicode_forms(target: Target) -> Made:
    """Composed and decomposed letters."""
    for form in ("NFC", "NFD"):
        yield target.with_text(unicodedata.normalize(form, target.text))


@same_answer("number")
def number_forms(target: Target) -> Made:
    """The same number: with commas, with zeros at its end, as mathematics, in other digits."""
    number = target.number
    assert number is not None
    plain = format(number, "f")
    boxed = target.span is not None and target.span.form == "boxed"
    if boxed:
        yield target.with_answer(f" {plain} ")
        yield target.with_answer(f"${plain}$"), "suspect"
        yield target.with_answer(f"\\text{{{plain}}}"), "suspect"
        yield target.with_answer(f"\\dfrac{{{2 * number}}}{{2}}"), "suspect"
    if abs(number) >= 1000:
        yield target.with_answer(f"{number:,f}"), "suspect"
        yield target.with_answer(f"{number:,f}".replace(",", "\\,")), "suspect"
    yield target.with_answer(f"{plain}0" if "." in plain else f"{plain}.0"), "suspect"
    if number < 0:
        yield target.with_answer(plain.replace("-", "\u2212")), "suspect"
    yield target.with_answer(f"+{plain}" if number > 0 else plain), "suspect"


@same_answer("choice")
def option_forms(target: Target) -> Made:
    """The option with a bracket, a full stop, or in bold."""
    own = target.answer.strip()
    for text in (f" {own} ", f"({own})", f"**{own}**", f"{own}.", own.lower(), f"\\text{{{own}}}"):
        yield target.with_answer(text), "suspect"


@same_answer("boxed")
def latex_forms(target: Target) -> Made:
    """Spaces, other fractions, brackets that grow."""
    own = target.answer
    yield target.with_answer(f" {own} ")
    # A molecule or a word has brackets and commas, too, and is no mathematics.
    sure = "\\" in own or not re.search("[A-Za-z]{2}|[A-Z]", own)
    for old, new in (
        ("\\frac", "\\dfrac"),
        ("\\dfrac", "\\frac"),
        ("(", "\\left("),
        ("+", " + "),
        (",", ", "),
    ):
        if old in own:
            changed = own.replace(old, new)
            reply = target.with_answer(changed.replace(")", "\\right)") if new == "\\left(" else changed)
            yield reply if sure else (reply, "suspect")


@same_answer("whole")
@same_answer("field")
@same_answer("line")
@same_answer("tag")
def word_forms(target: Target) -> Made:
    """Other case, a full stop, an article, quotation marks, two blanks."""
    own = target.answer.strip()
    if target.options or target.number is not None or len(own) > 200:
        return
    forms = (
        f" {own} ",
        own.lower(),
        own.upper(),
        f"{own}.",
        f'"{own}"',
        f"the {own}",
        own.replace(" ", "  "),
    )
    for text in forms:
        yield target.with_answer(text), "suspect"


@same_answer("json")
def json_forms(target: Target) -> Made:
    """Other order of keys, other indentation, escaped characters."""
    try:
        wanted = json.loads(target.answer)
    except ValueError:
        return
    yield target.with_answer(json.dumps(wanted, indent=1))
    yield target.with_answer(json.dumps(wanted, separators=(",", ":"), ensure_ascii=False))
    yield target.with_answer(json.dumps(wanted, ensure_ascii=True))
    yield target.with_answer(json.dumps(_reordered(wanted), ensure_ascii=False))
    if target.span is not None and target.span.end - target.span.start == len(target.text.strip()):
        yield target.with_text(f"```json\n{target.text.strip()}\n```"), "suspect"


@same_answer("code")
def code_forms(target: Target) -> Made:
    """The program written out anew, without comments, with others, with a function that is not called."""
    try:
        written = _unparsed(ast.parse(target.answer))
    except (SyntaxError, ValueError, RecursionError):
        return
    yield target.with_answer(written)
    yield target.with_answer(f"# a comment\n\n{target.answer}\n\n# the end")
    if "from __future__" not in target.answer:
        yield target.with_answer(f"def _spare(*args):\n    return args\n\n\n{target.answer}")


@same_answer("sql")
def sql_forms(target: Target) -> Made:
    """Other white space, a semicolon, a comment, a query round the query."""
    own = target.answer.strip().rstrip(";")
    end = ";" if target.answer.strip().endswith(";") else ""
    yield target.with_answer(f"{own};")
    yield target.with_answer(own), "suspect"  # some rules read a query up to its semicolon
    yield target.with_answer(f"{own}{end}\n")
    if "--" not in own and "'" not in own:
        yield target.with_answer(" ".join(own.split()) + end)
    if not re.search(r"(?i)\border by\b", own):
        yield target.with_answer(f"SELECT * FROM ({own})"), "suspect"
    yield target.with_answer(f"-- a comment\n{own}{end}"), "suspect"


@same_answer("calls")
def call_forms(target: Target) -> Made:
    """Other order of keys, other white space, other ids, a message beside the call."""
    calls = target.calls
    yield target.with_calls([_rewritten(call, _reordered(_arguments(call))) for call in calls])
    yield target.with_calls([{**call, "arguments": json.dumps(_arguments(call), indent=2)} for call in calls])
    ids = {call.get("call_id"): f"call_other_{number}" for number, call in enumerate(calls)}
    yield target.with_calls([{**call, "call_id": ids[call.get("call_id")]} for call in calls])
    if len(target.turns) == 1 and len(calls) > 1:
        yield target.with_calls(calls[::-1]), "suspect"
    yield [["I will do that.", *target.turns[0]], *target.turns[1:]], "suspect"


# -- parts --------------------------------------------------------------------------------------------


def _other_digit(text: str, place: int) -> str:
    digit = text[place]
    other = "1" if not digit.isdigit() else str((int(digit) + 1) % 10 or 1)
    return text[:place] + other + text[place + 1 :]


def _other_values(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, -value - 1]
        case str():
            return [f"{value}x", ""] if value else ["x"]
        case list():
            return [[*cast("list[Any]", value), "x"], cast("list[Any]", value)[:-1]] if value else [["x"]]
        case None:
            return ["x"]
        case _:
            return [{"x": 1}]


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    try:
        found: Any = json.loads(call["arguments"])
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _rewritten(call: dict[str, Any], arguments: Any) -> dict[str, Any]:
    return {**call, "arguments": json.dumps(arguments, ensure_ascii=False)}


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(one) for key, one in reversed(cast("dict[str, Any]", value).items())}
    if isinstance(value, list):
        return [_reordered(one) for one in cast("list[Any]", value)]
    return value


def _json_mutants(value: Any) -> Iterator[tuple[str, Any]]:
    """Values with one change, at the top or one level below."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, one in list(fields.items())[:6]:
            yield "less", {key: other for key, other in fields.items() if key != name}
            for other in _other_values(one):
                yield "value", {**fields, name: other}
            yield "type", {**fields, name: {"wrong": ["type"]}}
        yield "more", {**fields, "surplus_by_audit": 1}
    elif isinstance(value, list) and value:
        elements = cast("list[Any]", value)
        yield "less", elements[:-1]
        yield "more", [*elements, elements[-1]]
        for what, first in _json_mutants(elements[0]):
            yield what, [first, *elements[1:]]
    else:
        yield from (("value", other) for other in _other_values(value))


_SWAPPED: dict[type[ast.AST], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def _mutable(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op, *_]) | ast.BinOp(op=op) | ast.BoolOp(op=op):
            return type(op) in _SWAPPED
        case ast.Constant(value=value):
            return type(value) is int
        case _:
            return False


def _mutate(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = _SWAPPED[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = _SWAPPED[type(node.op)]()
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case _:
            pass


def _unparsed(tree: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))
