from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gym_models import hosted, openai, vllm
from gym_runtime.environment import catalogue, examples
from gym_runtime.environment.replaying import rejudge
from gym_runtime.environment.tools import NOT_FOUND
from gym_runtime.environment.verdict import make_response
from gym_runtime.errors import TaskError
from gym_runtime.workers.adapter import ModelSettings
from models.model_calls import context, model_call
from resources.judging import call, judge, nemo_gym_rows, outputs, row
from resources.pixels import middle
from tables import table

pytestmark = pytest.mark.anyio
NAME = "circle_click"
CIRCLES = [
    {"x": 50, "y": 50, "radius": 10, "color": "red"},
    {"x": 100, "y": 50, "radius": 5, "color": "blue"},
    {"x": 200, "y": 200, "radius": 50, "color": "blue"},
]
BLUE = (30, 60, 220)
TASK = row(circles=CIRCLES, target_color="blue")


def click(x: Any, y: Any) -> dict[str, Any]:
    return call("click", {"x": x, "y": y})


@table(
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


@pytest.mark.parametrize(
    ("adapter", "api"),
    [(openai, "responses"), (openai, "chat"), (vllm, "chat"), (vllm, "responses"), (hosted, "chat")],
)
async def test_an_engine_sees_the_image(adapter: Any, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes the image that arrives, finds the circle in it, and clicks on its middle."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-0123456789")
    example = examples.read(catalogue.environment(NAME))[0]

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"data": [{"id": "m"}]})
        body = await request.json()
        (image, _) = body["input" if api == "responses" else "messages"][1]["content"]
        url = image["image_url"] if api == "responses" else image["image_url"]["url"]
        x, y = middle(url, BLUE)
        if api == "responses":
            return web.json_response(msgspec.json.decode(make_response(click(x, y))))
        function = {"name": "click", "arguments": json.dumps({"x": x, "y": y})}
        calls = [{"id": "c", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return web.json_response({"choices": [{"message": message, "finish_reason": "tool_calls"}]})

    server = TestServer(web.Application())
    server.app.router.add_route("*", "/{path:.*}", answer)
    asked = model_call(*example.fields["responses_create_params"]["input"])
    async with server:
        url = str(server.make_url("/v1"))
        settings = ModelSettings(provider="anthropic", name="m", urls=(url,), api=api)
        async with adapter.Adapter(settings) as engine:
            response = (await engine.respond(asked, context())).response
    verdict = await rejudge(catalogue.environment(NAME).resource, example.row, bytes(response))
    assert example.fields["target_color"] == "blue"
    assert (verdict.reward, verdict.fields["distance"] < 2) == (1.0, True)


async def test_rows_in_nemo_gyms_format_are_won_at_the_centre() -> None:
    for line in nemo_gym_rows(NAME):
        task = json.loads(line)
        for circle in task["circles"]:
            verdict = await judge(NAME, line, click(circle["x"], circle["y"]), "Done.")
            assert verdict.reward == float(circle["color"] == task["target_color"])
