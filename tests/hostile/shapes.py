"""Replies that a hostile or a derailed model may give: a megabyte of every bad shape that is known.

`TEXTS` makes a text by its shape's name and its size. `replies` puts it wherever a model, or a tool that it
drives, can put a text. What makes some reader slow belongs here, once, for every environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

SIZE_BYTES = 1_000_000


def _again(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """The unit as often as fits between the two."""

    def text(size: int) -> str:
        room = size - len(before.encode()) - len(after.encode())
        return before + unit * (room // len(unit.encode())) + after

    return text


def _mirrored(opening: str, closing: str, before: str = "", middle: str = "") -> Callable[[int], str]:
    """As many opening as closing units, nested."""

    def text(size: int) -> str:
        depth = (size - len(before)) // len(opening + closing)
        return before + opening * depth + middle + closing * depth

    return text


def _numbered(line: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """Lines that differ in their numbers."""

    def text(size: int) -> str:
        count = (size - len(before) - len(after)) // (len(line.format(1)) + 5)
        return before + "".join(line.format(number) for number in range(count)) + after

    return text


def _billion_laughs(size: int) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE r [<!ENTITY e0 "ha">{entities}]><r>{"&e11;" * (size // 5 - 300)}</r>'


def _one_long_entity(size: int) -> str:
    return f'<!DOCTYPE r [<!ENTITY a "{"x" * (size // 2)}">]><r>{"&a;" * (size // 6 - 20)}</r>'


def _yaml_laughs(size: int) -> str:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    return f"a0: &a0 [x]\n{levels}\n".ljust(size, "#")


def _dashed_words(size: int) -> str:
    return "-".join(["x"] * (size // 2))


TEXTS: dict[str, Callable[[int], str]] = {
    # Boxes, braces and brackets.
    "boxes that are never closed": _again("\\boxed{"),
    "boxes in boxes": _mirrored("\\boxed{", "}"),
    "boxes one by one": _again("\\boxed{1}"),
    "boxes with spaces": _again("\\boxed {1}"),
    "texts in a box": _mirrored("\\text{", "}", before="\\boxed{", middle="B}"),
    "letters in a box": _again("A ", before="\\boxed{", after="}"),
    "flat braces in a box": _again("{}", before="\\boxed{"),
    "open braces": _again("{"),
    "closed braces": _again("}"),
    "nested braces": _mirrored("{", "}"),
    "open brackets": _again("["),
    "nested brackets": _mirrored("[", "]"),
    "open parentheses": _again("("),
    "nested parentheses": _mirrored("(", ")", middle="1"),
    "grids one by one": _again("[[1,2],[3,4]] ", before="[[1,,2]] "),
    "grids in boxes that are none": _again("\\boxed{[[1,,2]]}"),
    "one long grid": _again("[1,1],", before="\\boxed{[", after="[1,1]]}"),
    "empty grids": _again("[[]] "),
    # Tags, fences and other marks of answers.
    "answer marks": _again("Answer: "),
    "answers that say nothing": _again("Answer: A or B\n"),
    "an answer mark before much space": _again(" ", before="Answer"),
    "an answer mark before many lines": _again("\n", before="Answer:"),
    "answer tags that are never closed": _again("<answer>"),
    "answer tags": _again("<answer>x</answer>"),
    "nested answer tags": _mirrored("<answer>", "</answer>"),
    "answer tags with spaces": _again("<answer > </ answer>"),
    "an answer tag before much": _again("<", before="<answer>"),
    "law tags": _again("<final_law>x</final_law>"),
    "law tags that are never closed": _again("<final_law>"),
    "a law of one long line": _again("1+", before="<final_law>x = ", after="1</final_law>"),
    "answer markers of chemistry": _again("<|answer_start|>C<|answer_end|"),
    "thoughts": _again("<think>hm</think>"),
    "thoughts that are never closed": _again("<think>"),
    "nested thoughts": _mirrored("<think>", "</think>"),
    "actions": _again("<action>hit</action"),
    "fences": _again("```\n"),
    "fences of code": _again("```python\nx = 1\n```\n"),
    "fences of SQL": _again("```sql\nSELECT 1;\n```\n"),
    "fences with long labels": _again("x", before="```"),
    "backticks": _again("`"),
    "stars": _again("*"),
    "headings": _again("# Answer\n"),
    "refusals": _again("I'm sorry, but I can't. "),
    # Numbers.
    "digits": _again("9"),
    "digits in a box": _again("9", before="\\boxed{", after="}"),
    "digits in JSON": _again("9", before='[{"event_id": ', after="}]"),
    "digits behind a point": _again("3", before="0."),
    "many numbers": _again("1 "),
    "an exponent": _again("9", before="\\boxed{10^{", after="}}"),
    "exponents of exponents": _again("9**", after="9"),
    "a hexadecimal number": _again("f", before="0x"),
    "a hexadecimal number in YAML": _again("f", before="city: 0x"),
    "a number to the base of 60": _again("1:", after="1"),
    "minus signs": _again("-", after="1"),
    "a long sum": _again("1+", before="\\boxed{", after="1}"),
    "fractions in fractions": _mirrored("\\frac{1}{", "}", before="\\boxed{", middle="2}"),
    "digits of other scripts": _again("٣"),
    # Documents.
    "deep JSON": _mirrored('{"a":', "}", middle="1"),
    "deep JSON that is cut off": _again('[{"a":'),
    "many JSON objects": _again('{"a": 1},', before="[", after="{}]"),
    "a flat JSON list": _again("1,", before="[", after="1]"),
    "JSON with many keys": _numbered('"a{}":1,', before="{", after='"z":1}'),
    "JSON with half characters": _again("\\ud800", before='{"a": "', after='"}'),
    "JSON events": _numbered('{{"event_id": {}, "start_time": "10:00", "duration": 30}},', "[", "{}]"),
    "JSON commands": _again('{"keystrokes": "x", "duration": 1},', '{"commands": [', "{}]}"),
    "YAML anchors": _yaml_laughs,
    "YAML lists in lists": _again("- "),
    "YAML keys in keys": _again("? "),
    "a flat YAML list": _again("- 1\n"),
    "YAML merge keys": _again("<<: *a\n", before="a: &a {b: 1}\n"),
    "entities of entities in XML": _billion_laughs,
    "one long entity in XML": _one_long_entity,
    "deep XML": _mirrored("<a>", "</a>"),
    "wide XML": _again("<a/>", before="<r>", after="</r>"),
    "attributes in XML": _numbered(' a{}="1"', before="<r", after="/>"),
    "dotted keys in TOML": _again("a.", after="a = 1"),
    "tables in TOML": _numbered("[a.b{}]\n"),
    "CSV rows": _again("1,2,3,4,5\n", before="ProductID,Category,Brand,Price,Stock\n"),
    "CSV quotes": _again('"', before="ProductID,Category,Brand,Price,Stock\n"),
    "CSV columns": _numbered("a{},"),
    # SQL.
    "SQL in parentheses": _mirrored("(", ")", before="```sql\nSELECT ", middle="1"),
    "SQL with many joins": _again(
        ", sqlite_master", before="```sql\nSELECT * FROM sqlite_master", after="\n```"
    ),
    "SQL without end": _again(
        " ",
        before="```sql\nWITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t",
        after="\n```",
    ),
    "SQL that makes much": _again(" ", before="```sql\nSELECT hex(zeroblob(400000000))", after="\n```"),
    "SQL selects": _again("SELECT "),
    "SQL semicolons": _again("SELECT 1;"),
    # Characters.
    "combining marks": _again("a\u0323\u0307"),
    "combining marks on one letter": _again("\u0323\u0307", before="\\boxed{a", after="}"),
    "zero-width characters": _again("\u200b\u200d\ufeff"),
    "characters that turn the direction": _again("\u202e\u2066B\u2069"),
    "emoji": _again("👩‍👩‍👧 "),
    "full-width letters": _again("Answer：Ｂ "),
    "letters with long case": _again("İß"),
    "NUL and control characters": _again("\x00\x1b[31m\x07"),
    "private characters": _again("\ue000\ue001\ue002"),
    # Plain, but long.
    "spaces": _again(" "),
    "lines": _again("\n"),
    "tabs": _again("\t"),
    "carriage returns": _again("\r\n"),
    "one word": _again("a"),
    "short words": _again("a "),
    "different words": _numbered("w{} "),
    "dashed words": _dashed_words,
    "full stops": _again(" ."),
    "initials": _again("A. "),
    "ellipses": _again("... "),
    "question marks": _again("? "),
    "quotes": _again('"'),
    "apostrophes": _again("'"),
    "commas": _again(","),
    "slashes": _again("/"),
    "backslashes": _again("\\"),
    "dollars": _again("$"),
    "underscores": _again("_"),
    "pairs of angles": _again("<<"),
    "sections": _again("Section 1\n"),
    "questions": _again("Question 1\nA) x\n"),
    "bullet points": _again("* x\n"),
    "ring systems": _again("C1CC1", before="<answer>", after="</answer>"),
    "branches of a molecule": _mirrored("C(", ")", before="<answer>", middle="C"),
    "code that fills memory": _again(" ", before="```python\nx = [0] * 10**10\n", after="\n```"),
}


def replies(text: str, tool: str) -> Iterator[tuple[str, list[dict[str, Any] | str]]]:
    """The text at every place of a transcript where it can stand: the place's name, and the output items.

    Args:
        tool: the name of a tool that may be called.
    """
    done = {"type": "function_call_output", "call_id": "c", "output": "done"}
    yield "message", [text]
    yield "message in parts", [_message(text[start : start + 1000]) for start in range(0, len(text), 1000)]
    yield "arguments", [_call(tool, text), done, "Done."]
    yield "argument", [_call(tool, json.dumps({"x": text})), done, "Done."]
    yield "name of a tool", [_call(text, "{}"), done, "Done."]
    yield "output of a tool", [_call(tool, "{}"), {**done, "output": text}, "Done."]
    yield "reasoning", [{"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}, "Done."]


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}
