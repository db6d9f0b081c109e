"""Right replies in other forms. One that a strict rule may refuse by intention is marked ``suspect``."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Iterator

from gym_testing.audit.changed_values import arguments_of, reordered, rewritten, unparsed
from gym_testing.audit.registry import Reply, Suspect, same_answer
from gym_testing.audit.target import Target

Made = Iterator[Reply | Suspect]


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
    if target.options or target.number is not None or len(own) > 200 or target.structured:
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
    yield target.with_answer(json.dumps(reordered(wanted), ensure_ascii=False))
    if target.span is not None and target.span.end - target.span.start == len(target.text.strip()):
        yield target.with_text(f"```json\n{target.text.strip()}\n```"), "suspect"


@same_answer("code")
def code_forms(target: Target) -> Made:
    """The program written out again, without comments, with others, with a function that is not called."""
    try:
        written = unparsed(ast.parse(target.answer))
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
    yield target.with_calls([rewritten(call, reordered(arguments_of(call))) for call in calls])
    yield target.with_calls(
        [{**call, "arguments": json.dumps(arguments_of(call), indent=2)} for call in calls]
    )
    ids = {call.get("call_id"): f"call_other_{number}" for number, call in enumerate(calls)}
    yield target.with_calls([{**call, "call_id": ids[call.get("call_id")]} for call in calls])
    if len(target.turns) == 1 and len(calls) > 1:
        yield target.with_calls(calls[::-1]), "suspect"
    yield [["I will do that.", *target.turns[0]], *target.turns[1:]], "suspect"
