from __future__ import annotations

import pytest
from gym_resources.extract.tagged import last_tagged


@pytest.mark.parametrize(
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
