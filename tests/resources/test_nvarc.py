from __future__ import annotations

import json

import pytest
from gym_resources.nvarc import grid
from gym_runtime.environment import catalogue
from gym_runtime.environment.settings import filled
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row, usable
from tables import table

pytestmark = pytest.mark.anyio
NAME = "nvarc"
PAIR = {"train": [], "test_input": [[1, 2], [3, 4]], "expected_output": [[2, 1], [4, 3]]}


@table(
    ("text", "found"),
    [
        ("\\boxed{2 1\n4 3}", [[2, 1], [4, 3]]),
        ("\\boxed{\n21\n43\n}", [[2, 1], [4, 3]]),
        ("\\boxed{2, 1\n\n 4,3 }", [[2, 1], [4, 3]]),
        ("\\boxed{[[2, 1],\n[4, 3]]}", [[2, 1], [4, 3]]),
        ("\\boxed{0 0} or \\boxed{21\n43}", [[2, 1], [4, 3]]),
        ("\\boxed{10 2}", [[10, 2]]),
        ("\\boxed{7}", [[7]]),
        ("\\boxed{" + "1" * 5000 + " 2}", None),
        ("\\boxed{[[1.5]]}", None),
        ("\\boxed{2 a}", None),
        ("\\boxed{}", None),
        ("\\boxed{2 1\n4 3", None),
        ("2 1\n4 3", None),
    ],
)
def test_a_grid_may_be_written_in_several_ways(text: str, found: list[list[int]] | None) -> None:
    assert grid(text) == found


async def test_a_grid_is_compared_in_every_cell() -> None:
    task = row(agent_mode="transductive", **PAIR)
    rewards = [
        (await judge(NAME, task, text)).reward for text in (r"\boxed{[[2,1],[4,3]]}", r"\boxed{[[2,1]]}", "")
    ]
    assert rewards == [1.0, 0.0, 0.0]


def program(body: str) -> str:
    return f"It is mirrored.\n```python\n{body}\n```"


LISTS = program("def transform(grid):\n    return [row[::-1] for row in grid]")
CASES = [
    (LISTS, "passed"),
    (program("import numpy as np\ndef transform(grid):\n    return np.fliplr(np.array(grid))"), "passed"),
    (
        program(
            "from scipy import ndimage\ndef transform(grid):\n    return tuple(tuple(r[::-1]) for r in grid)"
        ),
        "passed",
    ),
    (f"```python\nprint(1)\n```\n{LISTS}\n```\nExample\n```", "passed"),
    (program("def transform(grid):\n    return grid"), "wrong"),
    (program("def transform(grid):\n    return 1"), "wrong"),
    (program("def transform(grid):\n    return grid[5]"), "raised"),
    (program("import os\ndef transform(grid):\n    os._exit(0)"), "died"),
    (program("def transform(grid)"), "raised"),
    ("def transform(grid): return [[2, 1], [4, 3]]", "passed"),
    ("[[2, 1], [4, 3]]", "no code"),
    ("", "no code"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "result"), CASES)
async def test_a_function_is_run_on_the_test(text: str, result: str) -> None:
    usable(NAME)
    verdict = await judge(NAME, row(agent_mode="inductive", python_timeout_seconds=2, **PAIR), text)
    assert verdict.fields["result"] == result
    assert verdict.reward == float(result == "passed")


async def test_the_agents_name_says_the_mode_where_the_row_does_not() -> None:
    environment = catalogue.environment(NAME)
    for mode in ("inductive", "transductive"):
        ref = f"nvarc_{mode}_simple_agent"
        assert catalogue.resolve_agent_ref(ref) == NAME
        line = filled(environment, row(agent_ref={"name": ref}, **PAIR), ref)
        assert json.loads(line)["agent_mode"] == mode
    with pytest.raises(TaskError):
        environment.resource.task(row(agent_mode="deductive", **PAIR))


@pytest.mark.parametrize("expected", [[], [[]], [[1], []], [["a"]]])
async def test_a_row_without_a_grid_is_refused(expected: object) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**{**PAIR, "expected_output": expected}))


async def test_rows_in_nemo_gyms_format_are_won_by_their_grid() -> None:
    for line in nemo_gym_rows(NAME):
        task = json.loads(line)
        if task["agent_mode"] == "transductive":
            right = "\n".join(" ".join(map(str, cells)) for cells in task["expected_output"])
            assert (await judge(NAME, line, rf"\boxed{{{right}}}")).reward == 1.0
            assert (await judge(NAME, line, rf"\boxed{{{right} 1}}")).reward == 0.0


@pytest.mark.slow
async def test_inductive_rows_in_nemo_gyms_format_are_won_by_a_function() -> None:
    for line in nemo_gym_rows(NAME):
        task = json.loads(line)
        if task["agent_mode"] == "inductive":
            text = program(f"def transform(grid):\n    return {task['expected_output']}")
            assert (await judge(NAME, line, text)).reward == 1.0
