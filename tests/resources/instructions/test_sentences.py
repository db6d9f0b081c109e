from __future__ import annotations

from gym_resources.instructions.sentences import sentences, sentences_by_rules
from hypothesis import given
from hypothesis import strategies as st
from tables import table


@table(
    "parts",
    [
        [],
        ["One."],
        ["One.", "two without an end"],
        ["Mr. Low met Dr. J. Kay in the U.S. today.", "They talked."],
        ["He left at 5 p.m.", "The train was late."],
        ["It cost 3.50, i.e.", "too much."],  # what Punkt never learnt
        ["Wait... what?", "Yes!", "Really?", "!"],
        ["It stopped...", "However, it went on."],
        ["It stopped... Then it went on."],  # "then" has been met within a sentence with a capital
        ["They left Foo Inc. She too."],
        ["They left Foo Inc.", "He too."],
        ["They took plan C. The rest left."],  # Punkt has learnt that "c." is an abbreviation, but not "b."
        ["They took plan B.", "The rest left."],
        ["It is 20 s. Every second counts.", "You are J. Kay."],
        ["Options: A.", "Use it.", "B.", "Select it."],
        ["1.", "First"],
        ["See fig.", "3. of the list."],
        ['She said "Go."', "He went."],
        ["(It rained.)", "[So what?]", "“Fine.”", "It stopped."],
        ["Bold ends.", "**"],
        ["See example.com for more.", "Bye"],
        ["日本。です"],
    ],
)
def test_sentences_end_where_punkt_has_them_end(parts: list[str]) -> None:
    text = " ".join(parts).replace(". **", ".**").replace("? !", "?!")
    assert sentences(text) == parts


def test_line_breaks_stay_within_a_sentence() -> None:
    assert sentences("# A title\n\nA line\nand more. Next\n") == ["# A title\n\nA line\nand more.", "Next"]


@table(
    "parts",
    [
        [],
        ["No end"],
        ["Dr. Low paid 3.5 pounds.", "Why?", "Because!"],
        ["Wait...", "what?"],
        ["J. R. Ewing of Ewing Inc. left.", "He drove."],
        ["A Ph.D. from example.com."],
        ["He knew the U.S.", "He stayed."],
    ],
)
def test_fixed_rules_know_a_few_abbreviations(parts: list[str]) -> None:
    assert sentences_by_rules("\n".join(parts)) == parts


def test_fixed_rules_put_full_stops_behind_quotes() -> None:
    assert sentences_by_rules('He said "Go." “No.” She went') == ['He said "Go".', "“No”.", "She went"]


@given(st.text(alphabet="aA1 .!?\"')]*\n…”", max_size=60))
def test_no_character_is_lost(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
    ruled = "".join(sentences_by_rules(text))
    assert sorted("".join(ruled.split())) == sorted("".join(text.split()))
