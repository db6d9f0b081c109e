from __future__ import annotations

import time

from gym_resources.extract.tagged import last_pair, last_tagged
from tables import table


@table(
    ("text", "answer"),
    [
        ("", None),
        ("42", None),
        ("<answer>42</answer>", "42"),
        ("<answer>\n 42 \n</answer>", "42"),
        ("<answer>1</answer> or <answer>2</answer>", "2"),
        ("<answer>1</answer> or <answer>2", "1"),
        ("<answer>1<answer>2</answer>", "2"),
        ("</answer>", None),
        ("</answer><answer>", None),
        ("<answer></answer>", ""),
        ("<answer>a < b</answer>", "a < b"),
    ],
)
def test_the_last_complete_pair_of_tags_counts(text: str, answer: str | None) -> None:
    assert last_tagged(text, "answer") == answer


@table(
    ("text", "any_pair", "filled"),
    [
        ("", None, None),
        ("42", None, None),
        ("<answer>42", None, None),
        ("42</answer>", None, None),
        ("<answer>\n 42 \n</answer>", "42", "42"),
        ("<answer>1</answer> or <answer>2</answer>", "2", "2"),
        ("<answer>1</answer> or <answer>2", "1", "1"),
        ("<answer>1<answer>2</answer>", "1<answer>2", "1<answer>2"),
        ("<answer>1<answer>2</answer></answer>", "1<answer>2", "1<answer>2"),
        ("<answer></answer>", "", None),
        ("<answer> \n</answer>", "", None),
        ("<answer>1</answer><answer></answer>", "", "1"),
        ("<answer></answer> <answer>1</answer>", "1", "</answer> <answer>1"),
        ("<Answer>1</Answer>", None, None),
    ],
)
def test_pairs_are_found_from_the_left(text: str, any_pair: str | None, filled: str | None) -> None:
    assert (last_pair(text, "answer"), last_pair(text, "answer", filled=True)) == (any_pair, filled)


def test_no_text_takes_long() -> None:
    texts = (
        "<answer>" * 125_000,
        "</answer>" * 110_000,
        "<answer>" + " " * 1_000_000,
        "<answer> </answer>" * 55_000,
    )
    start_s = time.process_time()
    for text in texts:
        last_pair(text, "answer")
        last_pair(text, "answer", filled=True)
    assert time.process_time() - start_s < 0.2
