"""Tests of functions: published programs become data, and values are compared by each problem's rule."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
from gym_resources.benchmarks import evalplus
from gym_resources.code.called_inside import tagged, untagged
from gym_resources.code.fenced_programs import defining_program
from gym_resources.code.function_tests import from_humaneval, from_mbpp
from gym_resources.code.published_tests import arguments_in, read_test
from gym_resources.code.returned_values import Rule, right
from tables import table

HEAD = """\
import numpy as np

def is_floats(x) -> bool:
    return isinstance(x, float)

def assertion(out, exp, atol):
    exact_match = out == exp
    assert exact_match or np.allclose(out, exp, rtol=1e-07, atol=atol)

"""
MBPP = HEAD + "inputs = {}\nresults = {}\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    {}\n"
BY_REFERENCE = """
def ref_func(n):
    results = list(range(*[n]))
    return results

inputs = [[3], [10000]]
for i, inp in enumerate(inputs):
    assertion(count_up(*inp), ref_func(*inp), 0)
"""
ROOTS = """
import math

def _poly(xs: list, x: float):
    return sum([coeff * math.pow(x, i) for i, coeff in enumerate(xs)])

def check(candidate):
    inputs = [[[-4, 2]]]
    results = [2.0]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assert _poly(*candidate(*inp), inp) <= 0.0001
"""


def mbpp(test: str, *assertions: str) -> dict[str, Any]:
    code = "def count_up(n):\n    return list(range(n))"
    return {"task_id": 7, "prompt": "Write it.", "code": code, "test": test, "test_list": list(assertions)}


def test_literals_of_all_kinds_are_read() -> None:
    inputs = "[[(1, 'a'), {2}], [inf, -nan], [set(), {3: [None]}], [True, 1j, float('-inf')]]"
    values = "[-1.5, [], 12345678901234567890, " + "9" * 5000 + "]"
    test = read_test(MBPP.format(inputs, values, "assertion(set(count_up(*inp)), set(exp), 1e-3)"))
    assert (test.function, test.tolerance) == ("count_up", 1e-3)
    one, two, three, four = untagged(test.inputs)
    assert (one, three, four) == ([(1, "a"), {2}], [set(), {3: [None]}], [True, 1j, -math.inf])
    assert (two[0], math.isnan(two[1])) == (math.inf, True)
    assert test.results is not None
    assert untagged(test.results) == [-1.5, [], 12345678901234567890, 10**5000 - 1]


@table(
    ("call", "found"),
    [
        ("3 * 19 * 3", [[171]]),
        ("[1, 0 ** 0]", [[[1, 1]]]),
        ("'ab' + 'c', 2", [["abc", 2]]),
        ("9 ** 9 ** 9", None),
        ("2 ** -1", None),
        ("10000000 * 2", None),
        ("'a' * 9", None),
        ("x", None),
        ("len([1])", None),
    ],
)
def test_small_sums_are_reckoned_and_names_are_not_read(call: str, found: list[Any] | None) -> None:
    program = (
        f"METADATA = {{}}\ndef check(candidate):\n    for x in []:\n        assert candidate({call}) == 1\n"
    )
    assert arguments_in([program], "candidate") == found


@pytest.mark.parametrize(
    ("original", "base", "inputs"),
    [
        (
            "def check(candidate):\n    assert candidate(2) == 2\n    assert abs(candidate(0) - 0) < 1\n",
            2,
            [0, 2, 1],
        ),
        ("def check(candidate):\n    assert candidate(7) == 7\n", None, [0, 1, 2]),  # not among the tests
        (
            "def check(candidate):\n    for x in range(9):\n        assert candidate(x) == x\n",
            None,
            [0, 1, 2],
        ),
        ("", None, [0, 1, 2]),
    ],
)
def test_humanevals_own_tests_come_first(original: str, base: int | None, inputs: list[int]) -> None:
    test = "def check(candidate):\n    inputs = [[0], [1], [2]]\n    results = [0, 1, 2]\n"
    test += "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
    record = {
        "task_id": "HumanEval/999",
        "prompt": "def same(n):\n    ...\n",
        "canonical_solution": "    return n\n",
        "entry_point": "same",
        "test": test + "        assertion(candidate(*inp), exp, 0)\n",
    }
    _, tests = from_humaneval(record, original)
    assert (tests.base, tests.inputs) == (base, [[n] for n in inputs])
    assert tests.outputs == inputs


@table(
    ("test", "complaint"),
    [
        ("inputs = [", "no Python program"),
        ("x = 1", "no list of inputs"),
        (
            MBPP.format("[[open('x')]]", "[1]", "assertion(f(*inp), exp, 0)"),
            "has a Call, which is no literal",
        ),
        (MBPP.format("[[1]]", "[1, 2]", "assertion(f(*inp), exp, 0)"), "1 inputs and 2 results"),
        (MBPP.format("[[1]]", "[1]", "assert f(*inp) == exp"), "no assertion with a tolerance"),
        (MBPP.format("[[1]]", "[1]", "assertion(1, exp, 0)"), "not one function"),
    ],
)
def test_what_is_not_of_the_published_form_is_refused(test: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_test(test)


def test_base_tests_are_those_of_the_list_of_assertions() -> None:
    test = MBPP.format("[[5], [1], [2]]", "['e', 'a', 'b']", "assertion(Diff(*inp), exp, 0)")
    text, tests = from_mbpp(mbpp(test, "assert Diff(1) == 'a'", "assert set(Diff(2)) == set('b')"))
    assert text == '"""\nWrite it.\nassert Diff(1) == \'a\'\n"""'
    assert (tests.inputs, tests.outputs, tests.base) == ([[1], [2], [5]], ["a", "b", "e"], 2)
    assert (tests.task_id, tests.rule) == ("Mbpp/7", "set")
    for unknown in ("assert Diff(9) == 'x'", "assert Diff(int('1')) == 'a'", "assert True"):
        assert from_mbpp(mbpp(test, "assert Diff(1) == 'a'", unknown))[1].base is None
    assert arguments_in(["assert f((1,), [2]) == f(3, 4)"], "f") == [[{"tuple": [1]}, [2]], [3, 4]]


def test_tests_without_results_have_a_reference() -> None:
    _, tests = from_mbpp(mbpp(HEAD + BY_REFERENCE, "assert count_up(3) == [0, 1, 2]"))
    assert (tests.outputs, tests.base, tests.reference) == (None, 1, mbpp("")["code"])


def test_a_root_may_be_any() -> None:
    record = {"task_id": "HumanEval/32", "prompt": "", "entry_point": "find_zero", "test": ROOTS}
    _, tests = from_humaneval(record)
    assert (tests.function, tests.rule, tests.tolerance) == ("find_zero", "root", 1e-4)


def test_problems_that_are_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    good = mbpp(HEAD + BY_REFERENCE, "assert count_up(3) == [0, 1, 2]")
    with caplog.at_level(logging.WARNING):
        made = list(evalplus.rows(iter([good, mbpp("x = 1", "")]), made_by=from_mbpp))
    assert len(made) == 1
    assert "problems left out, because their tests cannot be read: 1: 7" in caplog.text
    assert "7 (the test has no list of inputs)" in caplog.text


NAN, INF = math.nan, math.inf


@table(
    ("rule", "arguments", "returned", "expected", "tolerance", "same"),
    [
        ("equal", [], True, 1, 0, True),
        ("equal", [], (1, 2), [1, 2], 0, False),
        ("equal", [], 1.0000001, 1.0, 0, True),
        ("equal", [], 1.00001, 1.0, 0, False),
        ("equal", [], [1.0000001, 2], [1.0, 2.0], 0, True),
        ("equal", [], (1.0000001,), [1.0], 0, False),
        ("equal", [], [1.0000001, "a"], [1.0, "a"], 0, False),
        ("equal", [], [1.0], [1.0, 1.0], 1, False),
        ("equal", [], 1.05, 1.0, 0.1, True),
        ("equal", [], 2, 1, 1e-6, False),
        ("equal", [], NAN, NAN, 0, True),
        ("equal", [], INF, 1.0, 0, False),
        ("equal", [], 5.0, INF, 0, False),
        ("equal", [], INF, INF, 0, True),
        ("equal", [], None, 0.0, 1, False),
        ("any", [], "x", True, 0, True),
        ("equal or zero", [], 0, 7, 0, True),
        ("equal or zero", [], 1, 7, 0, False),
        ("pyramid", [3, 4], 35, 33, 0, True),
        ("pyramid", [3, 4], 34, 33, 0, False),
        ("pyramid", [3, 4], None, 33, 0, False),
        ("digits", [23, 156], 1 + 3 + 3, 6, 0, True),
        ("digits", [23, 156], 5, 6, 0, False),
        ("set", [], [2, 1, 1], (1, 2), 0, True),
        ("set", [], [[1]], (1, 2), 0, False),
        ("not none", [], "match", True, 0, True),
        ("not none", [], None, False, 0, True),
        ("not none", [], False, True, 0, False),
        ("root", [[-4, 2]], 2.00001, 0.0, 1e-4, True),
        ("root", [[-4, 2]], -9.0, 0.0, 1e-4, False),
        ("root", [[-4, 2]], 10**400, 0.0, 1e-4, False),
        ("root", [[-4, 2]], NAN, 0.0, 1e-4, False),
    ],
)
def test_values_are_compared_by_the_problems_rule(
    rule: Rule, arguments: list[Any], returned: Any, expected: Any, tolerance: float, same: bool
) -> None:
    assert right(rule, arguments, returned, expected, tolerance) is same


@table(
    "value", [[1, (2.5, None)], {"a": {1, 2}}, {(1, frozenset({2})): "x"}, 10**40, -INF, 2j, True, "\n", {}]
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = untagged(json.loads(json.dumps(tagged(value))))
    assert (back, type(back)) == (value, type(value))


@table(
    ("text", "program"),
    [
        ("```python\ndef f(): 1\n```\nso\n```\nf()\n```", "def f(): 1"),
        ("```\ndef f(): 1\n```\n```\ndef f(): 2\n```", "def f(): 2"),
        ("```\n    return 1\n```", "def f():\n    return 1"),
        ("```\ndef f(): 1", "def f(): 1"),
        ("def f(): 1", "def f(): 1"),
        (" ", " "),
    ],
)
def test_the_program_is_the_last_block_that_defines_the_function(text: str, program: str) -> None:
    assert defining_program(text, "f", "def f():\n") == program
