from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue, examples
from resources.judging import judge, nemo_gym_rows, row
from resources.pixels import pixels
from tables import table

pytestmark = pytest.mark.anyio
NAME = "circle_count"
TASK = row(
    circles=[{"x": 1, "y": 1, "radius": 1, "color": c} for c in ("red", "red", "blue")], target_color="red"
)


@table(
    ("text", "reward"),
    [
        (r"\boxed{2}", 1.0),
        (r"\boxed{ 02 }", 1.0),
        (r"\boxed{3}? No: \boxed{2}", 1.0),
        (r"\boxed{2} \boxed{3}", 0.0),
        (r"\boxed{2.0}", 0.0),
        (r"\boxed{two}", 0.0),
        (r"\boxed{2", 0.0),
        (r"\boxed{" + "0" * 100 + "2}", 0.0),
        ("2", 0.0),
        ("", 0.0),
    ],
)
async def test_the_last_box_has_the_number(text: str, reward: float) -> None:
    assert (await judge(NAME, TASK, text)).reward == reward


async def test_there_may_be_none_of_the_colour() -> None:
    task = row(circles=[], target_color="red")
    assert [(await judge(NAME, task, text)).reward for text in (r"\boxed{0}", "none")] == [1.0, 0.0]


async def test_rows_in_nemo_gyms_format_are_won_by_their_count() -> None:
    for line in nemo_gym_rows(NAME):
        task = json.loads(line)
        count = sum(circle["color"] == task["target_color"] for circle in task["circles"])
        assert (await judge(NAME, line, rf"\boxed{{{count}}}")).reward == 1.0
        assert (await judge(NAME, line, rf"\boxed{{{count + 1}}}")).reward == 0.0


def test_the_images_show_what_the_rows_say() -> None:
    for example in examples.read(catalogue.environment(NAME)):
        (image, _) = example.fields["responses_create_params"]["input"][1]["content"]
        shown = pixels(image["image_url"])
        circles: list[dict[str, Any]] = example.fields["circles"]
        seen = {(str(circle["color"]), shown[int(circle["y"])][int(circle["x"])]) for circle in circles}
        assert len(seen) == len({name for name, _ in seen}) == len({colour for _, colour in seen})
