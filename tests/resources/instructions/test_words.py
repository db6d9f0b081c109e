from __future__ import annotations

from gym_resources.instructions.words import (
    _split,  # pyright: ignore[reportPrivateUsage]
    count_words,
    occurrences,
    plain_words,
    tokens,
    word_tokens,
)
from hypothesis import given
from hypothesis import strategies as st
from tables import table


@table(
    ("text", "expected"),
    [
        ("", ""),
        ("The cat sat.", "The|cat|sat|."),
        ("One. Two.", "One|.|Two|."),
        ("He can't, won't, and it's John's.", "He|ca|n't|,|wo|n't|,|and|it|'s|John|'s|."),
        ("I cannot; we're gonna go", "I|can|not|;|we|'re|gon|na|go"),
        ('She said "no" (twice)', "She|said|``|no|''|(|twice|)"),
        ("'quoted' words", "'|quoted|'|words"),
        ("“curly” ‘quotes’", "“|curly|”|‘|quotes|’"),
        ("$3.50, 5% & #1", "$|3.50|,|5|%|&|#|1"),
        ("well-known -- and — so", "well-known|--|and|—|so"),
        ("wait... what?!", "wait|...|what|?|!"),
        ("**bold** a/b", "*|*|bold|*|*|a/b"),
        ("at 3:30, no:w", "at|3:30|,|no|:|w"),
        ("[a] {b} <c>", "[|a|]|{|b|}|<|c|>"),
    ],
)
def test_tokens_are_the_treebanks(text: str, expected: str) -> None:
    assert tokens(text) == (expected.split("|") if expected else [])


@given(st.lists(st.text(alphabet="aB'\".,: ()!?`’n$5-", min_size=1), max_size=4))
def test_sentences_are_split_together_as_each_alone(found: list[str]) -> None:
    assert _split(found) == [token for sentence in found for token in _split([sentence])]


def test_other_ways_to_count() -> None:
    text = "Don't stop, well-known e-mail! 3.14"
    assert count_words(text) == 9
    assert plain_words(text) == ["Dont", "stop", "wellknown", "email", "314"]
    assert word_tokens("Go! (Now.)") == ["Go", "Now"]
    assert occurrences("a.b A.B axb", "a.b") == 2
