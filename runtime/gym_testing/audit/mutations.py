"""Near misses: perfect rollouts with a change that makes them wrong.

One that may be right after all, such as a changed constant of a program, is marked ``suspect``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from gym_testing.audit.changed_values import (
    arguments_of,
    holds,
    json_mutants,
    mutable,
    mutate,
    other_digit,
    other_values,
    selected,
    unparsed,
    violates,
)
from gym_testing.audit.exploits import wrong_answer
from gym_testing.audit.registry import Reply, Suspect, near_miss
from gym_testing.audit.target import Target

Made = Iterator[Reply | Suspect]
CHANGED_RESULTS = (
    "right + 1 if isinstance(right, (int, float)) else right + right[:1] if right else None",
    "right - 1 if isinstance(right, (int, float)) else right[:-1] if right else None",
    "-right - 1 if isinstance(right, (int, float)) else right[::-1] + right[:1] if right else None",
    "[right]",
    "[][0]",
    "str(right) if not isinstance(right, str) else right.upper() + ' '",
)
"""Expressions that give another value than ``right``."""


@near_miss("number")
def wrong_numbers(target: Target) -> Made:
    """The first digit changed, the last digit changed, another sign, ten times as much, a digit more."""
    number = target.number
    assert number is not None
    own = format(number, "f")
    first = next((place for place, digit in enumerate(own) if digit in "123456789"), 0)
    for text in (other_digit(own, first), format(-number, "f"), format(number * 10, "f")):
        if Decimal(text) != number:
            yield target.with_answer(text)
    tolerated = "." in own or "tol" in target.expectation
    for text in (other_digit(own, len(own) - 1), own + "9"):
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
        yield target.with_answer(other_digit(own, digits[0]))
        yield target.with_answer(other_digit(own, digits[-1]))
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


@near_miss("boxed")
@near_miss("whole")
@near_miss("field")
@near_miss("line")
@near_miss("tag")
def wrong_words(target: Target) -> Made:
    """Another answer; the answer without a word, without its end, reversed, or longer."""
    own = target.answer.strip()
    if target.options or len(own) > 200 or target.structured:
        return
    if "episode" in target.kinds and own not in target.expectation:
        return  # one of several moves that may win
    if "boxed" in target.kinds and not re.fullmatch(r"[^\W\d_][^\W\d_ '-]{2,}[^\d\\]*", own):
        return  # an expression
    yield target.with_answer(wrong_answer(target))
    if target.number is not None:
        return
    certain = target.exact or (target.span is not None and target.span.form == "whole")
    digits = [place for place, one in enumerate(own) if one.isascii() and one.isdigit()]
    if digits and len(own) < 40:
        changed = [other_digit(own, digits[0]), other_digit(own, digits[-1])]
        changed += [
            own[: digits[-1] + 1] + own[digits[-1] :],
            own[: digits[0]] + own[digits[0]] + own[digits[0] :],
        ]
        for text in changed:
            yield target.with_answer(text) if certain else (target.with_answer(text), "suspect")
    changed = [f"{chr(ord(letter) - 1)}{own[1:]}" for letter in own[:1] if letter.isalnum()]
    changed += [f"{chr(ord(letter) + 1)}{own[1:]}" for letter in own[:1] if letter.isalnum()]
    changed += [own[:-1], own[1:], own[::-1], f"{own}x", f"{own} not", own[: len(own) // 2]]
    if " " in own:
        changed += [own.rsplit(" ", 1)[0], own.split(" ", 1)[1]]
    for text in dict.fromkeys(changed):
        words, right = re.findall(r"\w+", text), re.findall(r"\w+", own)
        if words != right:  # else only a stop is missing
            sure = certain and sorted(words) != sorted(right)  # the order of a list may not matter
            yield target.with_answer(text) if sure else (target.with_answer(text), "suspect")


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
    if target.span is not None and target.kinds & {"json", "code", "sql"} and len(target.answer) > 20:
        yield target.with_answer(target.answer[: len(target.answer) // 2])


@near_miss("json")
def wrong_json(target: Target) -> Made:
    """A key less, a key more, a value of another type, a value changed, an element less."""
    try:
        wanted = json.loads(target.answer)
    except ValueError:
        return
    # A value is certainly wrong only where the row expects this very value, or has a schema that forbids it.
    exact = any(value == wanted for value in target.row.values())
    strict = '"additionalProperties": false' in target.expectation
    for what, value in json_mutants(wanted):
        more = what == "more" and strict and isinstance(wanted, dict)
        certain = exact or more or (what == "type" and "schema" in target.kinds)
        certain = certain or violates(value, target.schema)
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
        yield target.with_answer(unparsed(hollow))
    places = [node for node in ast.walk(tree) if mutable(node)]
    step = max(1, len(places) // 8)
    for number in range(0, len(places), step):
        mutant = ast.parse(target.answer)
        mutate([node for node in ast.walk(mutant) if mutable(node)][number])
        yield target.with_answer(unparsed(mutant)), "suspect"


@near_miss("code")
def changed_results(target: Target) -> Made:
    """A program whose functions return more, less, or another type than they should."""
    for result in CHANGED_RESULTS:
        try:
            tree = ast.parse(target.answer)
        except (SyntaxError, ValueError, RecursionError):
            return
        returned = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
        for node in returned:
            changed = ast.parse(f"(lambda right: {result})(0)", mode="eval").body
            assert isinstance(changed, ast.Call)
            changed.args = [node.value] if node.value else []
            node.value = changed
        if returned:
            yield target.with_answer(unparsed(tree))


@near_miss("code")
def changed_outputs(target: Target) -> Made:
    """A program that prints more, or something else."""
    if re.search(r"\bprint\(", target.answer) and not re.search(r"(?m)^def ", target.answer):
        for value in ('f"{one}x"', 'f"A{one}"', 'f"~{one}"', "str(one)[:-1]", "str(one)[1:]"):
            head = (
                f"_print = print\ndef print(*all, **more):\n    _print(*[{value} for one in all], **more)\n"
            )
            yield target.with_answer(f"{head}{target.answer}")
        yield target.with_answer(f"{target.answer}\nprint('wibble')")
        yield target.with_answer(f"print('wibble')\n{target.answer}")


@near_miss("patch")
def wrong_blocks(target: Target) -> Made:
    """Blocks of a search and a replacement: one left out, its texts longer, shorter or other ones."""
    own = target.answer or target.text
    found = list(re.finditer(r"(<{5,} SEARCH\n)(.*?)(\n={5,}\n)(.*?)(\n>{5,} REPLACE)", own, re.DOTALL))

    def changed(place: int, new: str) -> Reply:
        text = own[: found[place].start()] + new + own[found[place].end() :]
        return target.with_answer(text) if target.span else target.with_text(text)

    for place, block in enumerate(found[:4]):
        begin, old, middle, new, end = block.groups()
        if len(found) > 1:
            yield changed(place, "")
        for text in (
            "wibble",
            f"{new}wibble",
            f"wibble{new}",
            f"{new}\nwibble",
            f"wibble\n{new}",
            new[:-1],
            old,
            "",
        ):
            if text != new:
                yield changed(place, f"{begin}{old}{middle}{text}{end}")
        for text in ("wibble", f"{old}wibble", f"wibble{old}"):
            yield changed(place, f"{begin}{text}{middle}{new}{end}")
        again = changed(place, f"{block[0]}\n{begin}{new}{middle}{new}wibble{end}")
        yield (again, "suspect") if len(found) > 1 else again


@near_miss("patch")
def wrong_patches(target: Target) -> Made:
    """A patch that changes nothing, another file, or something else; that does not fit; without a part."""
    own = target.answer or target.text
    if "@@" not in own:
        return

    def patched(pattern: str, new: str, count: int = 0) -> Any:
        changed = re.sub(pattern, new, own, count=count, flags=re.MULTILINE)
        return (
            target.with_answer(changed)
            if target.span
            else target.with_text(target.text.replace(own, changed))
        )

    unchanged = re.sub(r"(?m)^-(?!--)(.*)\n\+.*$", r"-\1\n+\1", own)
    if unchanged != own:
        yield target.with_answer(unchanged) if target.span else target.with_text(unchanged)
    yield patched(r"^(\+\+\+ b/|--- a/)(.*?)(\S+)$", r"\1\2other_\3")
    yield patched(r"^\+(?!\+\+).*$", "+wibble")
    yield patched(r"^-(?!--).*$", "-wibble")
    yield patched(r"^[-+](?!--|\+\+).*\n?", "")
    yield patched(r"^(\+)(?!\+\+)(.*)$", r"\1\2 + wibble")
    if re.search(r"(?m)^\+\+\+ .*\.py$", own):
        yield patched(r"^\+[ \t]+(?=\S)", "+")
    hunks = re.split(r"(?m)^(?=@@ )", own)
    for place in range(1, len(hunks)) if len(hunks) > 2 else ():
        less = "".join([*hunks[:place], *hunks[place + 1 :]])
        yield target.with_answer(less) if target.span else target.with_text(less)
    yield patched(r"^\+(?!\+\+).*\n?", ""), "suspect"
    yield from (patched(r"^-(?!--)", start) for start in ("-A", "-~", "wibble"))  # does not fit
    yield from (patched(r"^\+(?!\+\+)", start) for start in ("+A", "+~", "wibble"))
    yield from (patched(rf"^(\{sign}(?!\{sign}\{sign}).*)\S$", r"\1") for sign in "-+")
    yield patched(r"^(\+\+\+ b/|--- a/)(.*?)(\S+)$", r"\1\2~\3")
    yield patched(r"^(@@.*)@@", r"\1wibble@@")
    yield patched(r"^(@@.*@@).*\n-", r"\1-")
    yield patched(r"^(---|\+\+\+) ", r"wibble\1 ")


@near_miss("sql")
def wrong_queries(target: Target) -> Made:
    """A condition, a grouping or all rows taken away; a row or a column more; operators changed."""
    own = target.answer.strip().rstrip(";")
    columns = selected(own)
    if columns:
        more = "SELECT " + ", ".join(["'wibble'"] * len(columns))
        yield target.with_answer(f"SELECT * FROM ({own}) UNION ALL {more}")
        yield target.with_answer(f"{more} UNION ALL SELECT * FROM ({own})")
    if len(columns) > 1:
        last = own.index(columns[-1], own.index(columns[-2]) + len(columns[-2]))
        yield target.with_answer(f"{own[:last]}'wibble'{own[last + len(columns[-1]) :]}")
    yield target.with_answer(f"SELECT *, 1 FROM ({own})"), "suspect"
    yield target.with_answer(f"SELECT * FROM ({own}) UNION ALL SELECT * FROM ({own})"), "suspect"
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
    Its calls of one turn have no order, and the runtime drops an argument that its tool does not have.
    """
    calls = target.calls
    whole = "session" not in target.kinds and "episode" not in target.kinds
    if whole:
        yield target.with_calls([*calls[:-1], {**calls[-1], "name": f"{calls[-1]['name']}_x"}])
        last = [item for item in target.turns[-1] if item]
        yield [*target.turns[:-1], [*last, {**calls[-1], "call_id": "call_again"}]]
    if sum(any(item in calls for item in turn) for turn in target.turns) > 1:
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
        arguments = arguments_of(call)
        if demanded:
            yield without({**call, "name": call["name"].upper()})
            yield without({**call, "arguments": "{"})
        exactly = demanded and bool(arguments) and holds(target.row, arguments)
        for changed in ({}, *([{**arguments, "surplus_by_audit": 1}] if whole else [])):
            new = without({**call, "arguments": json.dumps(changed)})
            yield new if exactly and whole else (new, "suspect")
        for name, value in list(arguments.items())[:6]:
            shown = json.dumps(value, ensure_ascii=False).replace('\\"', '"')
            sure = demanded and shown in target.expectation
            for changed in (*other_values(value),):
                new = without({**call, "arguments": json.dumps({**arguments, name: changed})})
                yield new if sure else (new, "suspect")
            less = {key: one for key, one in arguments.items() if key != name}
            yield without({**call, "arguments": json.dumps(less)}), "suspect"
