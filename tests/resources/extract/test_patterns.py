from __future__ import annotations

import os

import pytest
from gym_resources.extract.patterns import LONG, bounded, last_match
from gym_resources.extract.templates import matched
from gym_runtime.errors import TaskError


@pytest.mark.parametrize(
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
async def test_long_texts_and_rows_expressions_are_read_in_another_process() -> None:
    where = "__import__('os').getpid()"
    assert await bounded(eval, where) == os.getpid()
    assert await bounded(eval, where.ljust(LONG)) == os.getpid()
    assert await bounded(eval, where.ljust(LONG + 1)) != os.getpid()
    assert await bounded(eval, where, expressions=["a"]) != os.getpid()


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_expression_that_backtracks_is_stopped() -> None:
    with pytest.raises(TaskError, match=r"'\(a\+\)\+\$' backtracks: it took longer than 0.2 s"):
        await bounded(matched, "a" * 40 + "b", ["(a+)+$"], {}, expressions=["(a+)+$"], timeout_s=0.2)
    assert await bounded(matched, "aab", ["a+(b)"], {}, expressions=["a+(b)"]) == "B"
