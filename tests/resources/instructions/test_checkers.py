from __future__ import annotations

import pytest
from gym_resources.instructions.instruction_ids import CHECKERS, bind
from resources.instructions.cases import CASES
from tables import table

EXTRAS = {"language:response_language": "langdetect", "change_case:english_capital": "langdetect"}
EXTRAS |= {"change_case:english_lowercase": "langdetect", "format:emoji": "emoji"}
EXTRAS |= {"words:odd_even_syllables": "syllapy"}
LONG = 300_000


def test_every_instruction_has_cases() -> None:
    assert set(CASES) == set(CHECKERS)


@pytest.mark.slow
@pytest.mark.parametrize("instruction", CHECKERS)
def test_texts_that_follow_are_told_from_those_that_do_not(instruction: str) -> None:
    if instruction in EXTRAS:
        pytest.importorskip(EXTRAS[instruction])
    for arguments, following, others in CASES[instruction]:
        check = bind(instruction, arguments)
        assert [text for text in following if not check(text)] == []
        assert [text for text in others if check(text)] == []


@pytest.mark.slow
@table(
    ("instruction", "text"),
    [
        ("detectable_content:number_placeholders", "[" * LONG),
        ("detectable_format:title", "<<" * LONG),
        ("detectable_format:title", "<" * LONG + "\n>>"),
        ("detectable_format:number_bullet_lists", "\n" * LONG),
        ("detectable_format:number_bullet_lists", " " * LONG),
        ("detectable_format:number_highlighted_sections", "*" * LONG),
        ("detectable_format:multiple_sections", "Section " * LONG),
        ("detectable_content:postscript", "p. " * LONG),
        ("length_constraints:number_paragraphs", " " * LONG),
        ("length_constraints:number_sentences", "." * LONG),
        ("length_constraints:number_sentences", "!" + ")" * LONG + "a"),
        ("length_constraints:number_sentences", "-" * LONG),
        ("change_case:capital_word_frequency", "." + "] " * LONG + "a"),
        ("change_case:capital_word_frequency", "'" * LONG),
        ("copy:repeat_phrase", "Time " * LONG),
        ("first_word:first_word_sent", "A.B." * LONG),
        ("custom:mcq_count_length", "Question 1" + "\n" * LONG),
        ("custom:csv_special_character", "ProductID," + " " * LONG),
        ("custom:european_capitals_sort", "a" + "\u0323\u0307" * LONG),
        ("custom:reverse_newline", "Zimbabwe" + "\u0323\u0307" * LONG),
        ("count:pronouns", " ." * LONG),
    ],
)
def test_a_text_that_makes_expressions_backtrack_is_done_with(instruction: str, text: str) -> None:
    bind(instruction, CASES[instruction][0][0])(text)  # a test that takes 20 s fails
