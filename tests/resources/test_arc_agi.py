from __future__ import annotations

import json

import pytest
from resources.judging import judge, namesakes, row

pytestmark = pytest.mark.anyio
TASK = row(expected_output=[[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"\boxed{[[1,2],[3,4]]}", 1.0),
        ("\\boxed{ [\n[1, 2],\n[3, 4]\n] }", 1.0),
        (r"$\boxed{[[1.0, 2], [3, 4]]}$", 1.0),
        ("The grid is [[1, 2], [3, 4]].", 1.0),
        ("```json\n[ [1, 2],\n  [3, 4] ]\n```", 1.0),
        (r"[[9]] but \boxed{[[1,2],[3,4]]}", 1.0),
        (r"\boxed{[[row1],[row2]]} means \boxed{[[1,2],[3,4]]}", 1.0),
        (r"\boxed{2} cells: [[1,2],[3,4]]", 1.0),
        (r"\boxed{\text{[[1,2],[3,4]]}}", 1.0),
        (r"\boxed{[[1,2],[3,4]]", 1.0),
        ("[[row1],[row2]] or [[1, 2], [3, 4]]", 1.0),
        (r"\boxed{[[0]]} \boxed{[[1,2],[3,4]]}", 0.0),
        ("[[0]] [[1, 2], [3, 4]]", 0.0),
        (r"\boxed{[[1,2],[3,5]]}", 0.0),
        (r"\boxed{[[1,2]]}", 0.0),
        (r"\boxed{[[1,2,3,4]]}", 0.0),
        (r"\boxed{[1,2,3,4]}", 0.0),
        (r'\boxed{[["1","2"],["3","4"]]}', 0.0),
        (r"\boxed{[[true,2],[3,4]]}", 0.0),
        ("1 2\n3 4", 0.0),
        ("[[1, 2], [3, 4]", 0.0),
        ("", 0.0),
    ],
)
async def test_the_first_grid_in_a_box_else_the_first_anywhere(text: str, reward: float) -> None:
    assert (await judge("arc_agi", TASK, text)).reward == reward


async def test_every_message_is_read_and_the_grid_is_shown() -> None:
    verdict = await judge("arc_agi", TASK, r"\boxed{[[1,2],[3,4]]}", "That is all.")
    assert verdict.reward == 1.0
    assert verdict.fields == {"extracted_answer": [[1, 2], [3, 4]]}


async def test_long_texts_of_brackets_take_no_time() -> None:
    for text in ("[" * 200_000, "[[1]," * 50_000, "[ " * 100_000, "[[" + " " * 200_000):
        assert (await judge("arc_agi", TASK, text)).reward == 0.0


async def test_the_rows_of_its_namesake_are_won_by_their_grid() -> None:
    for task in namesakes("arc_agi"):
        line = json.dumps(task).encode()
        assert (await judge("arc_agi", line, rf"\boxed{{{task['expected_output']}}}")).reward == 1.0
        assert (await judge("arc_agi", line, rf"\boxed{{{task['test_input']}}}")).reward == 0.0
