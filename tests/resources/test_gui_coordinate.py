from __future__ import annotations

import json

import pytest
from gym_runtime.environment import catalogue, examples
from gym_runtime.errors import TaskError
from resources.judging import judge, nemo_gym_rows, row
from resources.pixels import pixels
from tables import table

pytestmark = pytest.mark.anyio
NAME = "gui_coordinate"
TASK = row(expected_answer="0.5000,0.2500", max_dist=0.1)


@table(
    ("text", "reward"),
    [
        ("<point>(500, 250)</point>", 1.0),
        ("<point>500,250.0</point>", 1.0),
        ("It is there: <point> ( 1 , 1 ) </point> no <point>(500, 250)</point>.", 1.0),
        ("<point>(500, 250)</point> or <point>(1, 1)</point>", 0.0),
        ("<point>(500, 300)</point>", 0.5),
        ("<point>(530, 290)</point>", 0.5),
        ("<point>(600, 250)</point>", 0.0),
        ("<point>(-500, 250)</point>", 0.0),
        ("<point>(0.5, 0.25)</point>", 0.0),
        ("<point>(500 250)</point>", 0.0),
        ("<point>(500, 250)", 0.0),
        ("(500, 250)", 0.0),
        ("", 0.0),
    ],
)
async def test_the_reward_falls_with_the_distance(text: str, reward: float) -> None:
    assert (await judge(NAME, TASK, text)).reward == pytest.approx(reward)


@pytest.mark.parametrize(("x", "reward"), [(500, 1.0), (599, 1.0), (601, 0.0)])
async def test_it_may_be_all_or_nothing(x: int, reward: float) -> None:
    task = row(expected_answer="0.5,0.25", max_dist=0.1, grading="within")
    assert (await judge(NAME, task, f"<point>({x}, 250)</point>")).reward == reward


@pytest.mark.parametrize(
    "fields",
    [{"expected_answer": "left"}, {"expected_answer": "0.1"}, {"expected_answer": "0,0", "max_dist": 0}],
)
async def test_a_row_without_a_point_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**fields))


async def test_rows_in_nemo_gyms_format_are_won_at_the_point() -> None:
    for line in nemo_gym_rows(NAME):
        x, y = map(float, json.loads(line)["expected_answer"].split(","))
        verdict = await judge(NAME, line, f"<point>({1000 * x:.2f}, {1000 * y:.2f})</point>")
        assert verdict.reward == pytest.approx(1.0)
        assert (
            await judge(NAME, line, f"<point>({1000 * x + 151:.2f}, {1000 * y:.2f})</point>")
        ).reward == 0.0


def test_the_screenshots_have_one_element_of_its_colour_at_the_point() -> None:
    for example in examples.read(catalogue.environment(NAME)):
        (image, _) = example.fields["responses_create_params"]["input"][0]["content"]
        shown = pixels(image["image_url"])
        x, y = map(float, example.fields["expected_answer"].split(","))
        colour = shown[int(y * len(shown))][int(x * len(shown[0]))]
        there = {(n, m) for m, line in enumerate(shown) for n, one in enumerate(line) if one == colour}
        wide, high = (max(axis) - min(axis) + 1 for axis in zip(*there, strict=True))
        assert len(there) == wide * high < len(shown) * len(shown[0]) / 4
