"""Values in the syntax of Java and JavaScript, and calls that have them as arguments."""

from __future__ import annotations

import time
from typing import Any

from gym_resources.expected_calls import java_values, javascript_values
from gym_resources.expected_calls.possible_answers import Function, Language, MadeCall, Parameters, matches
from gym_resources.expected_calls.tool_schemas import tool
from tables import table

JAVA = [
    ("-128", "byte", "", -128),
    ("1.0", "integer", "", "1.0"),
    ("7L", "long", "", 7),
    ("7", "long", "", "7"),
    ("2.5e3f", "float", "", 2500.0),
    ("2.5", "float", "", "2.5"),
    ("2.5", "double", "", 2.5),
    ("true", "boolean", "", True),
    ("True", "boolean", "", "True"),
    ("'c'", "char", "", "'c'"),
    ('"x"', "String", "", '"x"'),
    ("5", "any", "", "5"),
    ("new long[]{1L, 2, 3L}", "Array", "long", [1, "2", 3]),
    ('new Object[] { 1, "a", true, 2f }', "Array", "", [1, "a", True, 2.0]),
    ("int[]{1}", "Array", "integer", "int[]{1}"),
    ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
    ("new ArrayList<Integer>() {{ add(1); add(2); }}", "ArrayList", "integer", [1, 2]),
    ("new ArrayList<>()", "ArrayList", "integer", []),
    ("Arrays.asList(1)", "ArrayList", "integer", "Arrays.asList(1)"),
    (
        'new HashMap<String, Object>() {{ put("a", 1); put("b c", "d"); }}',
        "HashMap",
        "",
        {"a": 1, "b c": "d"},
    ),
    ("new HashMap<String, List<String>>()", "HashMap", "", {}),
    ("Map.of()", "HashMap", "", "Map.of()"),
    ("new Stack<>()", "Stack", "", "new Stack<>()"),
    ("9" * 5000, "integer", "", "9" * 5000),
]
JAVASCRIPT = [
    ("'x'", "String", "", "x"),
    ("x", "String", "", "x"),
    ("3.0", "float", "", 3.0),
    ("3n", "Bigint", "", 3),
    ("3", "Bigint", "", "3"),
    ("false", "Boolean", "", False),
    ("[1, 'two', true]", "array", "", [1, "two", True]),
    ("new Array(1n, 2n)", "array", "Bigint", [1, 2]),
    (" [ [1, 2], [3,  4] ]", "array", "array", [[1, 2], [3, 4]]),
    ("new Array([1], ['a'])", "array", "array", [[1], ["a"]]),
    ("[]", "array", "integer", []),
    ("list", "array", "integer", "list"),
    ("{}", "dict", "", {}),
    ('{a: 1, \'b\': "c, d", "e": [1, 2]}', "dict", "", {"a": 1, "b": "c, d", "e": [1, 2]}),
    ("{a: {b: 1}}", "dict", "", {"a": "{b: 1"}),  # as in the source: it ends at the first bracket
    ("options", "dict", "", "options"),
]


@table(("text", "kind", "items", "value"), JAVA)
def test_java(text: str, kind: str, items: str, value: object) -> None:
    assert repr(java_values.value(text, kind, items)) == repr(value)


@table(("text", "kind", "items", "value"), JAVASCRIPT)
def test_javascript(text: str, kind: str, items: str, value: object) -> None:
    assert repr(javascript_values.value(text, kind, items)) == repr(value)


@table(
    ("language", "kind", "given", "possible", "right"),
    [
        ("java", "integer", "3", [3], True),
        ("java", "integer", 3, [3], False),  # every argument is a text
        ("java", "integer", "count", ["count"], True),  # a variable
        ("java", "float", "3", [3.0], False),
        ("java", "any", "MapController", ["mapController"], True),
        ("java", "HashMap", 'new HashMap<>() {{ put("a", 1); }}', [{"a": [1, 2]}], True),
        ("javascript", "Boolean", "true", [True], True),
        ("javascript", "dict", "{a: 'B c'}", [{"a": ["b-c"]}], True),
        ("javascript", "dict", "{a: 'x'}", [{"a": ["b"]}], False),
        ("javascript", "String", "x" * 30_000, ["x" * 30_000], False),
    ],
)
def test_arguments_are_read_in_their_language(
    language: Language, kind: str, given: object, possible: list[Any], right: bool
) -> None:
    function = Function("f", Parameters({"x": {"type": kind}}, ["x"]))
    assert matches(MadeCall("f", {"x": given}), function, {"x": possible}, language) is right


def test_parameters_are_offered_as_texts_with_their_types() -> None:
    properties: dict[str, Any] = {
        "a": {"type": "ArrayList", "items": {"type": "String"}, "description": "A."},
        "b": {"type": "any", "description": "B."},
    }
    function = {
        "name": "x.f",
        "description": "Does.",
        "parameters": {"type": "dict", "properties": properties},
    }
    offered = tool(function, "java")
    assert offered["description"] == "Does. Note that the provided function is in Java 8 SDK syntax."
    a, b = (offered["parameters"]["properties"][name] for name in "ab")
    assert a == {
        "type": "string",
        "description": "A. This is Java ArrayList type parameter in string representation. "
        "The list elements are of type String; they are not in string representation.",
    }
    assert b["description"] == "B. This parameter can be of any type of Java object in string representation."
    assert properties["a"]["items"] == {"type": "String"}


@table("unit", ["{a:", "[", "[[", "add(\n", ",:", "new ", "}}", 'put("a",', "new HashMap<> "])
def test_every_text_is_read_in_little_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    heads = {
        "java": (
            "",
            "new ArrayList<>(Arrays.asList(",
            "new ArrayList<>() {{ ",
            "new int[]{",
            "new HashMap<>() {{ ",
        ),
        "javascript": ("", "{", "[", "[[", "new Array("),
    }
    start_s = time.thread_time()
    for module, language in ((java_values, "java"), (javascript_values, "javascript")):
        for head in heads[language]:
            for end in ("", ")", "))", "}}", "]"):
                for kind in module.KINDS:
                    module.value(head + text + end, kind, "any")
    assert time.thread_time() - start_s < 5  # of 1,000 texts
