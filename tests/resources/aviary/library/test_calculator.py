"""The calculator of GSM8K: what it pays, and which expressions it does not evaluate."""

from __future__ import annotations

from typing import Any

import pytest
from resources.aviary.library.library_runs import SUM, needed, steps
from resources.judging import call
from tables import table

pytestmark = pytest.mark.anyio
CALCULATED: list[tuple[list[Any], list[Any] | None, float, bool]] = [
    ([call("calculator", {"expr": "40 + 2"})], ["42"], 0.0, False),
    ([call("calculator", {"expr": " (1 + 2) * 3 / 4"})], ["2.25"], 0.0, False),
    ([call("submit_answer", {"answer": "42.0"})], ["True"], 1.0, True),
    ([call("submit_answer", {"answer": 42})], ["True"], 1.0, True),
    ([call("submit_answer", {"answer": "41"})], ["False"], 0.0, True),
    ([call("submit_answer", {"answer": "42 apples"})], ["False"], -1.0, True),
    ([call("calculator", {"expr": "1 / 0"})], None, -1.0, True),
    ([call("calculator", {"expr": "__import__('os')"})], None, -1.0, True),
    ([call("abacus", {})], [""], -1.0, True),
    ([call("calculator", {})], [""], -1.0, True),
    ([call("calculator", {"expr": ["1"]})], [""], -1.0, True),
    ([call("calculator", "{")], [""], -1.0, True),
    (
        [call("calculator", {"expr": "6*7"}, "a"), call("submit_answer", {"answer": "42"}, "b")],
        ["42", "True"], 1.0, True,
    ),
    (
        [call("submit_answer", {"answer": str(guess)}, str(guess)) for guess in range(40, 44)],
        ["False"], 0.0, True,
    ),
    ([call("submit_answer", {"answer": "42"}, name) for name in "ab"], ["True"], 1.0, True),
    (["42"], ["No tool calls received. Please call one or more tools to proceed."], 0.0, False),
]  # fmt: skip


@pytest.mark.slow
async def test_the_calculator_pays_what_the_library_pays_for_one_submission() -> None:
    resource = needed("gsm8k_aviary")
    for answer, read, reward, over in CALCULATED:
        got, worth, ended = await steps(resource, SUM, answer)
        assert (worth, ended) == ([reward], over), answer
        if read is None:
            assert got[0][0].startswith("Error using calculator: ")
        else:
            assert got == [read], answer


@table(
    "expr",
    [
        "9**9**9**9",
        "(-9)**(9**9)",
        "10**4000 * 10**4000",
        "round(1, -10**5)",
        "round(1, -10**10)",
        "9" * 5000,
        "1e308 * 10",
        "(-8)**0.5",
        "-" * 10_000 + "1",
        "(" * 10_000,
        "1+" * 10_000 + "1",
        "1" + "\0",
        "\N{MULTIPLICATION SIGN}",
    ],
)
async def test_an_expression_that_cannot_be_evaluated_is_a_failed_call(expr: str) -> None:
    [[said]], worth, over = await steps(needed("gsm8k_aviary"), SUM, [call("calculator", {"expr": expr})])
    assert said.startswith("Error using calculator: ")
    assert (worth, over) == ([-1.0], True)


@table(
    ("expr", "result"),
    [
        ("2**10", "1024"),
        ("2**-1", "0.5"),
        ("1**10**9", "1"),
        ("2**0.5", "1.4142135623730951"),
        ("round(2.678, 1)", "2.7"),
        ("round(7/2)", "4"),
        ("max(3, min(5, 4)) + abs(-2)", "6"),
        ("7 // 2 + 7 % 4", "6"),
        ("10**4000 // 10**3999", "10"),
    ],
)
async def test_what_the_library_calculates_is_calculated(expr: str, result: str) -> None:
    from aviary.envs.gsm8k.env import SafeMathEvaluator

    [[said]], worth, over = await steps(needed("gsm8k_aviary"), SUM, [call("calculator", {"expr": expr})])
    assert (said, worth, over) == (result, [0.0], False)
    assert float(said) == SafeMathEvaluator.evaluate(expr)
