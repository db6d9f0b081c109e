from __future__ import annotations

from typing import Any

import pytest
from gym_resources.instructions.any_language import VERIFIF
from gym_resources.instructions.instruction_ids import CHECKERS, IFBENCH, IFEVAL, IFTRAIN, bind, expressions
from tables import table


def test_the_benchmarks_are_complete() -> None:
    assert (len(IFEVAL), len(IFTRAIN), len(IFBENCH)) == (25, 29, 58)
    assert len(CHECKERS) == len(IFEVAL) + len(IFTRAIN) + len(IFBENCH) + len(VERIFIF)
    assert all(checker.__doc__ for checker in CHECKERS.values())


def test_arguments_come_as_data_sets_write_them() -> None:
    every_name: dict[str, Any] = {"N": 2.0, "keyword": None, "relation": None, "num_words": None}
    assert bind("count:lowercase_counting", every_name)("two words")
    assert not bind("count:lowercase_counting", {"N": 2, "end_phrase": "unused"})("three small words")
    assert bind("punctuation:no_comma", None)("a")
    assert bind("first_word:first_word_sent", {"first_word": ["go"]})("Go on. Go away.")


def test_what_is_no_plain_word_is_named() -> None:
    def named(instruction: str, **arguments: Any) -> list[str]:
        return list(expressions(bind(instruction, arguments)))

    assert named("keywords:existence", keywords=["plain words", "C++", "a-b, c", "a.b"]) == ["C++", "a.b"]
    assert named("keywords:frequency", keyword="(a)", frequency=1, relation="at least") == ["(a)"]
    assert named("keywords:forbidden_words", forbidden_words=["a", "[b]"]) == ["[b]"]
    assert named("keywords:word_once", keyword="what?") == ["what?"]
    assert named("keywords:exclude_word_harder", keyword="what?") == []
    assert named("punctuation:no_comma") == []


@table(
    ("instruction", "arguments", "message"),
    [
        ("keywords:existance", {}, "'keywords:existance': there is no such instruction"),
        ("keywords:existence", {}, "'keywords:existence': .* missing required field `keywords`"),
        ("keywords:existence", {"keywords": None}, "missing required field `keywords`"),
        ("keywords:existence", {"keywords": 1}, "Expected `array`, got `int`"),
        (
            "keywords:existence",
            {"keywords": ["a", "b("]},
            "'keywords:existence': 'b\\(' is not an expr",
        ),
        ("keywords:word_once", {"keyword": "a{99999999999}"}, "is not an expression"),
        (
            "length_constraints:number_words",
            {"num_words": 5, "relation": "at most"},
            "Invalid enum value 'at most'",
        ),
        ("length_constraints:number_words", {"num_words": 5.5, "relation": "at least"}, "Expected `int`"),
    ],
)
def test_what_cannot_be_checked_is_refused(instruction: str, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bind(instruction, arguments)
