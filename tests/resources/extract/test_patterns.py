from __future__ import annotations

import time

import pytest
from gym_resources.extract import letters
from gym_resources.extract.patterns import LONG, bounded, last_match
from gym_resources.extract.templates import matched
from gym_runtime.errors import TaskError
from tables import table


@table(
    ("pattern", "text", "captured"),
    [
        (r"Answer: ([A-Z])", "Answer: A ... Answer: B", "B"),
        (r"Answer: ([A-Z])", "none", None),
        (r"Answer: [A-Z]", "Answer: A", "Answer: A"),
        (r"\(\((.*?)\)\)", "((1)) ((2))", "2"),
        (r"<a>(.*?)</a>|<b>(.*?)</b>", "<a>1</a><b>2</b>", "2"),
        (r"x(\d*)", "x1 x", ""),
        (r"ANSWER IS ([a-z])", "Answer is A, the answer is B", "B"),
        (r"Answer: ([A-Z]", "Answer: A", None),
        (r"a{99999999999}", "a", None),
    ],
)
def test_the_last_match_counts(pattern: str, text: str, captured: str | None) -> None:
    assert last_match(pattern, text) == captured


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_long_text_is_read_in_another_process() -> None:
    options, unit = {"A": "", "B": ""}, "Answer: A or B\n"
    assert len(unit) * 5000 <= LONG
    for count, elsewhere in ((5000, False), (70_000, True)):
        assert await bounded(letters.after_last_answer, unit * 100, options) is None
        start_s = time.thread_time()
        assert await bounded(letters.after_last_answer, unit * count, options) is None
        per_character_us = (time.thread_time() - start_s) * 1e6 / (len(unit) * count)
        assert (per_character_us < 0.05) is elsewhere


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_expression_that_backtracks_is_stopped() -> None:
    with pytest.raises(TaskError, match=r"'\(a\+\)\+\$' backtracks: it took longer than 0.2 s"):
        await bounded(matched, "a" * 40 + "b", ["(a+)+$"], {}, expressions=["(a+)+$"], timeout_s=0.2)
    assert await bounded(matched, "aab", ["a+(b)"], {}, expressions=["a+(b)"]) == "B"
