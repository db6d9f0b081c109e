from __future__ import annotations

import json
import time

import pytest
from gym_resources.arc_agi import grid
from resources.judging import judge, nemo_gym_rows, row
from tables import table

pytestmark = pytest.mark.anyio
TASK = row(expected_output=[[1, 2], [3, 4]])


@table(
    ("text", "reward"),
    [
        (r"\boxed{[[1,2],[3,4]]}", 1.0),
        ("\\boxed{[\n[1, 2],\n[3, 4]\n]}", 1.0),
        (r"\boxed{[[1.0, 2], [3, 4]]}", 0.0),
        (r"\boxed{[[+1, 2], [3, 4]]}", 0.0),
        (r"\boxed{[[-1, 2], [3, 4]]} or [[1,2],[3,4]]", 1.0),  # with a sign it is no grid in a box
        (r"\boxed{ [[0]]} or [[1,2],[3,4]]", 0.0),  # nor with a space, but it is one outside of boxes
        (r"\boxed{ [[1,2],[3,4]] }", 1.0),
        (r"\boxed {[[0]]} or \boxed{[[1,2],[3,4]]}", 1.0),
        (r"\boxed{[[,]]} but [[1,2],[3,4]]", 0.0),  # a box with a list of lists: only boxes are read
        (r"\boxed{[[]]} \boxed{[[1,2],[3,4]]}", 1.0),
        (r"\boxed{[[],[1]]} \boxed{[[1,,2]]} \boxed{[[1,2],[3,4]]}", 1.0),
        (r"[[]] [[1 2]] [[01]] [[1,2],[3,4]]", 1.0),
        (r"[[1],[]] [[1,2],[3,4]]", 0.0),
        (r"[[[1,2],[3,4]]]", 0.0),
        (r"[[[1,2],[3,4]] ] or [[1,2],[3,4]]", 1.0),
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
    verdict = await judge("arc_agi", TASK, "[[1,2],", "[3,4]]", "That is all.")
    assert verdict.reward == 1.0  # a newline between messages does not matter
    verdict = await judge("arc_agi", TASK, r"\boxed{[[1,2],[3,4]]}", "That is all.")
    assert verdict.reward == 1.0
    assert verdict.fields["extracted_answer"] == [[1, 2], [3, 4]]


def test_a_grid_of_a_megabyte_is_none() -> None:
    assert grid("[" + "[1,1]," * 150_000 + "[1,1]] [[1]]") is None
    assert grid("[[1," + " " * 900_000 + "2]]") == [[1, 2]]


@pytest.mark.slow
def test_long_texts_of_brackets_take_no_time() -> None:
    for shape in ("[", "[[", "[[1],", "[ ", "[[ ", "[[]]", "[[1,,]] ", "[[1]", r"\boxed{[[1,,]]}", "[[1]]]"):
        for before in ("", "[[", r"\boxed{[["):
            start_s = time.thread_time()
            assert grid(before + shape * (1_000_000 // len(shape))) is None
            assert time.thread_time() - start_s < 1


async def test_rows_in_nemo_gyms_format_are_won_by_their_grid() -> None:
    for line in nemo_gym_rows("arc_agi"):
        task = json.loads(line)
        assert (await judge("arc_agi", line, rf"\boxed{{{task['expected_output']}}}")).reward == 1.0
        assert (await judge("arc_agi", line, rf"\boxed{{{task['test_input']}}}")).reward == 0.0
