"""Sokoban and Tetris as text: what moves do, what they are worth, and that rooms can be solved."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from gym_resources import grl_tetris
from gym_resources.puzzles import sokoban_rooms
from gym_resources.puzzles.sokoban_rooms import MOVES, Room
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.shapes import Episode, Step
from gym_runtime.environment.verdict import Reply, make_response
from gym_runtime.errors import TaskError
from resources.judging import row

pytestmark = pytest.mark.anyio
LONG = ["#######", "#PX_O_#", "#######"]
BESIDE = ["########", "#P√_XO##", "########"]


async def played(name: str, *answers: str, **fields: Any) -> list[Step]:
    """The steps of one game, with the first observation in front."""
    resource = catalogue.environment(name).resource
    async with session_of(resource, row(**fields)) as session:
        assert isinstance(session, Episode)
        steps = [Step(observation=await session.reset())]
        for answer in answers:
            steps.append(await session.step(Reply(make_response(answer))))
        return steps


def solvable(room: Room) -> bool:
    waiting, seen = deque([room]), {(room.player, room.boxes)}
    while waiting:
        now = waiting.popleft()
        if now.on_target == len(now.boxes):
            return True
        for move in MOVES:
            after = now.moved(move)
            if (after.player, after.boxes) not in seen:
                seen.add((after.player, after.boxes))
                waiting.append(after)
    return False


@pytest.mark.parametrize(("height", "width", "boxes"), [(5, 5, 1), (6, 7, 1), (6, 6, 2)])
def test_rooms_of_seeds_can_be_solved_and_are_not_solved_yet(height: int, width: int, boxes: int) -> None:
    rooms = [sokoban_rooms.made(seed, height, width, boxes) for seed in range(6)]
    assert rooms == [sokoban_rooms.made(seed, height, width, boxes) for seed in range(6)]
    assert len(set(rooms)) > 1
    for room in rooms:
        assert room.on_target < len(room.boxes) == boxes
        assert solvable(room)


async def test_moves_cost_and_a_box_on_its_target_pays() -> None:
    answers = ["<action>LEFT</action>", "Up?", "<action> Right </action>", "<action>Right</action>"]
    first, left, none, _, pushed = await played("grl_sokoban", *answers[:3], *answers[2:3], room=[*LONG])
    assert first.observation == "\n".join(LONG)
    assert (left.reward, left.observation) == (-0.1, first.observation)
    assert (none.reward, none.terminated) == (0.0, False)
    assert (round(pushed.reward, 6), pushed.terminated, pushed.info["success"]) == (10.9, True, True)
    assert pushed.observation == "#######\n#__P√_#\n#######"


async def test_a_box_that_leaves_its_target_costs_and_the_player_may_stand_there() -> None:
    [_, off] = await played(
        "grl_sokoban", "<action>Right</action>", room=["########", "#P√_XO##", "########"]
    )
    assert (round(off.reward, 6), off.terminated) == (-1.1, False)
    assert off.observation == "########\n#_SXXO##\n########"


@pytest.mark.parametrize("room", [["###"], ["#PX#"], ["#PXO?#"], ["#PPXO#"]])
def test_rooms_that_are_none_are_refused(room: list[str]) -> None:
    with pytest.raises(ValueError, match="'room' has one P"):
        sokoban_rooms.read(room)


async def test_a_room_without_space_is_the_tasks_fault() -> None:
    with pytest.raises(TaskError, match="no room of 4 x 4 with 2 boxes"):
        await played("grl_sokoban", dim_room=[4, 4], num_boxes=2)


def board(**fields: Any) -> dict[str, Any]:
    return {"dim_board": [3, 3], "box_type": 1, **fields}


async def test_a_full_line_is_worth_ten_and_ends_the_game() -> None:
    [seed, *_] = [seed for seed in range(99) if sorted(await starts(seed)) == [0, 1, 2]]
    columns = await starts(seed)
    down = "<action>Down</action>" * 2
    first, second, third, last = await played(
        "grl_tetris", down, down, f"{down}<action>Left</action>", **board(seed=seed)
    )
    assert first.observation is not None
    assert str(first.observation).splitlines()[0][columns[0]] == "X"
    assert (second.reward, third.reward) == pytest.approx((-0.2, -0.2))
    assert (last.reward, last.terminated) == (pytest.approx(9.8), True)
    assert last.observation == "___\n___\n___"
    assert last.info == {"success": True, "actions": 6}


async def starts(seed: int, *, downs: int = 2) -> list[int]:
    """In which columns the first three pieces appear, the second one dropped by so many rows."""
    down = "<action>Down</action>"
    steps = await played("grl_tetris", down * 2, down * downs, **board(seed=seed))
    return [str(step.observation).splitlines()[0].find("X") for step in steps]


async def test_settled_blocks_in_the_top_row_end_the_game_without_a_reward() -> None:
    seed = next(iter([seed for seed in range(99) if await starts(seed, downs=1) == [1] * 3]))
    down = "<action>Down</action>"
    *_, on_two, over = await played("grl_tetris", down * 2, down, down, **board(seed=seed))
    assert not on_two.terminated
    assert (over.reward, over.terminated, over.info["success"]) == (-0.1, True, False)
    assert over.observation == "_#_\n_#_\n_#_"


@pytest.mark.parametrize("kind", [1, 2, 3])
async def test_pieces_appear_inside_the_board(kind: int) -> None:
    for seed in range(40):
        [first] = await played("grl_tetris", seed=seed, dim_board=[3, 4], box_type=kind)
        top, *rest = str(first.observation).splitlines()
        assert len(top) == 3
        assert 1 <= top.count("X") <= (1 if kind == 1 else 2)
        assert not any("X" in line for line in rest)


async def test_an_answer_without_an_action_changes_nothing() -> None:
    _, none = await played("grl_tetris", "Left, I think.", **board())
    assert (none.reward, none.terminated) == (0.0, False)


async def test_very_long_answers_take_no_time() -> None:
    many = "<action>Left</action>" * 100_000
    _, step = await played("grl_tetris", many, **board())
    assert step.reward == pytest.approx(grl_tetris.ACTION_COST * grl_tetris.ACTIONS_AT_MOST)
