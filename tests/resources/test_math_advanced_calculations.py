from __future__ import annotations

import json
import math
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.tools import SERVER_ERROR
from gym_runtime.errors import TaskError
from resources.judging import call, judge, nemo_gym_rows, output, outputs, row
from tables import table

pytestmark = pytest.mark.anyio
NAME = "math_advanced_calculations"
TASK = row(ground_truth="[-3.0, 9.9]")
IMPOSSIBLE = '{"detail":"this operation has no finite real result"}'

RESULTS: list[tuple[str, dict[str, float], float]] = [
    ("multiply", {"a": 1, "b": 9}, 9.9),
    ("divide", {"a": 1, "b": 1}, 0.5),
    ("add", {"a": 4, "b": 2}, 7.2),
    ("sin", {"radians": 5}, 0.28366218546322625),
    ("cos", {"radians": 0.5}, math.sin(0.5)),
    ("subtract", {"a": 9, "b": 9}, -3),
    ("power", {"a": 2, "b": 10}, 4096),
    ("log", {"a": 5, "base": 2.5}, math.log(5, 4)),
    ("log", {"a": 6, "base": -5}, math.log(6, 3.5)),
    ("pi", {}, 2.718281828459045),
    ("negate", {"a": 5}, 5),
    ("return_constant", {"a": 3}, 3),
]


async def test_every_operator_is_odd_in_its_own_way() -> None:
    answers = await outputs(NAME, TASK, [(name, arguments) for name, arguments, _ in RESULTS])
    assert [json.loads(answer) for answer in answers] == [{"solution": result} for *_, result in RESULTS]


async def test_what_has_no_result_says_so() -> None:
    calls: list[tuple[str, object]] = [
        ("divide", {"a": 1, "b": 0}),
        ("log", {"a": -1, "base": 2}),
        ("log", {"a": 2, "base": -0.5}),
        ("power", {"a": -8, "b": 0.5}),
        ("power", {"a": 0, "b": -3}),
        ("power", {"a": 1e10, "b": 1e10}),
        ("multiply", {"a": 1e300, "b": 1e300}),
    ]
    assert set(await outputs(NAME, TASK, calls)) == {IMPOSSIBLE}
    (refused,) = await outputs(NAME, TASK, [("sin", {"radians": "inf"})])
    assert "Expected a finite number" in refused


@table(
    ("texts", "reward"),
    [
        (['{"solution":-3.0}', '{"solution":9.9}'], 1.0),
        (['{"solution": 9.9}', '{"solution": 1}', '{"solution": -3}'], 1.0),
        (['{"solution":-3.0}', '{"solution":9.900000000000002}'], 0.0),  # a rounding apart
        (['{"solution":"-3"}', '{"solution":" 9.9 "}'], 1.0),
        (['{"solution":"-3.0","more":[]}', '{"solution":99e-1}'], 1.0),
        (['{"solution":"minus 3"}', '{"solution":9.9}'], 0.0),
        (['{"solution":[-3.0]}', '{"solution":9.9}'], 0.0),
        (['{"solution":null}', '{"solution":9.9}', "[]", '"solution"'], 0.0),
        (['{"solution":-3.0}', '{"solution":9.9000001}'], 0.0),
        (['{"solution":-3.0}'], 0.0),
        (['{"solution":-3.0}', IMPOSSIBLE, SERVER_ERROR, "9.9"], 0.0),
        ([], 0.0),
    ],
)
async def test_every_expected_value_is_among_the_solutions(texts: list[str], reward: float) -> None:
    items: list[Any] = [call("pi", {}), *map(output, texts), "-3.0 and 9.9"]
    assert (await judge(NAME, TASK, *items)).reward == reward


@pytest.mark.parametrize(
    ("truth", "given", "reward"),
    [
        ("[1]", "true", 1.0),
        ("[0]", "false", 1.0),
        ("[1]", "1e0", 1.0),
        ("[1]", "NaN", 0.0),
        ("[1]", "9" * 400, 0.0),
    ],
)
async def test_a_solution_is_what_float_makes_of_it(truth: str, given: str, reward: float) -> None:
    assert (await judge(NAME, row(ground_truth=truth), output(f'{{"solution":{given}}}'))).reward == reward


async def test_a_value_that_is_asked_for_twice_needs_no_two_calls() -> None:
    twice = row(ground_truth="[7.2, 7.2]")
    assert (await judge(NAME, twice, output('{"solution":7.2}'))).reward == 1.0


@table("truth", ["", "[]", "1.0", "[1.0", '["a"]', "null"])
async def test_a_truth_that_is_no_list_of_numbers_is_refused(truth: str) -> None:
    with pytest.raises(TaskError, match="'ground_truth' must be a list of numbers"):
        catalogue.environment(NAME).resource.task(row(ground_truth=truth))


PROGRAMS: list[list[tuple[Any, ...]]] = [
    [("negate", ("add", 4.0, 3.0))],
    [("subtract", 9.0, 9.0), ("divide", 1.0, 1.0), ("multiply", 1.0, 9.0), ("sin", 5.0)],
    [
        ("return_constant", 3.0),
        ("cos", ("subtract", 5.0, ("log", 5.0, ("divide", 5.0, 1.0)))),
        ("subtract", ("negate", 5.0), ("pi",)),
        (
            "multiply",
            (
                "multiply",
                ("add", ("divide", 5.0, 1.0), ("log", 3.0, 7.0)),
                ("subtract", ("negate", 1.0), ("pi",)),
            ),
            (
                "add",
                ("divide", ("multiply", 6.0, 7.0), 7.0),
                ("log", ("negate", 6.0), ("subtract", 6.0, 8.0)),
            ),
        ),
    ],
    [("divide", ("power", 4.0, 6.0), ("pi",))],
    [("pi",), ("add", 4.0, 2.0), ("power", 2.0, 10.0), ("divide", 4.0, 1.0)],
    [("negate", ("add", ("divide", ("sin", 3.0), 3.0), ("sin", ("multiply", 3.0, 2.0))))],
]


async def test_rows_in_nemo_gyms_format_are_won_by_doing_what_they_ask_for() -> None:
    tools = catalogue.environment(NAME).resource.tools
    lines = nemo_gym_rows(NAME)
    assert len(lines) in (1, len(PROGRAMS))  # our own row is the first
    for line, program in zip(lines, PROGRAMS, strict=False):
        steps = list[Any]()

        async def run(expression: Any, line: bytes = line, steps: list[Any] = steps) -> float:
            if not isinstance(expression, tuple):
                return expression
            name, *operands = expression
            values = [await run(operand) for operand in operands]
            arguments = dict(zip(tools[name].definition()["parameters"]["properties"], values, strict=True))
            [text] = await outputs(NAME, line, [(name, arguments)])
            steps.extend([call(name, arguments), output(text)])
            return json.loads(text)["solution"]

        for expression in program:
            await run(expression)
        assert (await judge(NAME, line, *steps, "Done.")).reward == 1.0
        assert (await judge(NAME, line, *steps[::2], "Done.")).reward == 0.0
