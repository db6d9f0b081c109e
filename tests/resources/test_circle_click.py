from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_models import openai
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.tools import NOT_FOUND
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call
from resources.judging import call, judge, nemo_gym_rows, outputs, row

pytestmark = pytest.mark.anyio
NAME = "circle_click"
CIRCLES = [
    {"x": 50, "y": 50, "radius": 10, "color": "red"},
    {"x": 100, "y": 50, "radius": 5, "color": "blue"},
    {"x": 200, "y": 200, "radius": 50, "color": "blue"},
]
TASK = row(circles=CIRCLES, target_color="blue")


def click(x: Any, y: Any) -> dict[str, Any]:
    return call("click", {"x": x, "y": y})


@pytest.mark.parametrize(
    ("items", "reward"),
    [
        ([click(100, 50)], 1.0),
        ([click(105, 50)], 1.0),
        ([click(103, 54)], 1.0),
        ([click(104, 54)], 0.0),
        ([click(200, 200)], 0.0),  # the second blue circle
        ([click(50, 50)], 0.0),
        ([click(100.5, 50.5)], 1.0),
        ([click("100", "50")], 1.0),
        ([click(100, 50), click(50, 50)], 1.0),
        ([click(50, 50), click(100, 50)], 0.0),
        ([click([100], 50), click(100, 50)], 1.0),
        ([call("click", "{"), click(100, 50)], 1.0),
        ([call("tap", {"x": 50, "y": 50}), click(100, 50)], 1.0),
        ([click([100], [50])], 0.0),
        ([call("click", {"x": 100})], 0.0),
        (["(100, 50)"], 0.0),
        ([], 0.0),
    ],
)
async def test_the_first_click_must_hit_the_first_circle_of_the_colour(
    items: list[Any], reward: float
) -> None:
    assert (await judge(NAME, TASK, *items)).reward == reward


async def test_the_tool_says_what_it_takes() -> None:
    calls = [("click", {"x": 1, "y": 2}), ("click", {"x": [1], "y": 2}), ("tap", {})]
    done, refused, unknown = await outputs(NAME, TASK, calls)
    assert done == '{"success":true}'
    assert "Expected `int`, got `array`" in refused
    assert unknown == NOT_FOUND


async def test_a_row_without_its_target_is_refused() -> None:
    with pytest.raises(TaskError, match="no circle has the target_color 'green'"):
        catalogue.environment(NAME).resource.task(row(circles=CIRCLES, target_color="green"))


async def test_the_image_stays_as_it_is() -> None:
    resource = catalogue.environment(NAME).resource
    part = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
    params = {"input": [{"role": "user", "content": [part]}]}
    task = row(circles=CIRCLES, target_color="red", responses_create_params=params)
    items = resource.task(task).responses_create_params.input_items()
    assert [msgspec.json.decode(item) for item in items] == params["input"]


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_the_image_reaches_the_engine_as_it_is(api: str) -> None:
    task = examples.read(catalogue.environment(NAME))[0].fields
    received: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        received.append(await request.json())
        if request.path.endswith("/responses"):
            return web.json_response(msgspec.json.decode(make_response("Done.")))
        message = {"role": "assistant", "content": "Done."}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    server = TestServer(web.Application())
    server.app.router.add_post("/{path:.*}", answer)
    async with server:
        settings = ModelSettings(provider="openai", name="m", urls=(str(server.make_url("/v1")),), api=api)
        async with openai.Adapter(settings) as adapter:
            await adapter.respond(model_call(*task["responses_create_params"]["input"]), context())

    [image, _] = task["responses_create_params"]["input"][1]["content"]
    [body] = received
    if api == "responses":
        assert body["input"][1]["content"][0] == image
    else:
        url = {"url": image["image_url"], **({"detail": image["detail"]} if "detail" in image else {})}
        assert body["messages"][1]["content"][0] == {"type": "image_url", "image_url": url}


async def test_rows_in_nemo_gyms_format_are_won_at_the_centre() -> None:
    for line in nemo_gym_rows(NAME):
        task = json.loads(line)
        for circle in task["circles"]:
            verdict = await judge(NAME, line, click(circle["x"], circle["y"]), "Done.")
            assert verdict.reward == float(circle["color"] == task["target_color"])
