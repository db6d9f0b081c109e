"""Images that tools return reach the model as parts, in the same order, with the same bytes."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from gym_agents.step_loop import Agent as StepLoop
from gym_agents.tool_loop import Agent as ToolLoop
from gym_runtime import Environment, Episode, Image, Reply, Session, Step, Task, Verdict, tool
from gym_runtime.messages import images
from gym_testing.small_system import (
    Engine,
    answer,
    environment,
    function_call,
    rollout_spec,
    small_system,
)
from runtime.environment.image_samples import png
from tables import table

pytestmark = pytest.mark.anyio


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x00\x10\x00\x20\x01"
GIF = b"GIF89a" + struct.pack("<HH", 3, 4)
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x1f\0\0\x0f\0\0"


@pytest.mark.parametrize(
    ("data", "kind"),
    [(png(2, 3), "png"), (JPEG, "jpeg"), (GIF, "gif"), (WEBP, "webp")],
)
def test_the_kind_is_read_from_the_data(data: bytes, kind: str) -> None:
    assert Image(data).media_type == f"image/{kind}"


@table(
    ("data", "problem"),
    [
        (b"", "no PNG"),
        (b"<svg onload='x'/>", "no PNG"),
        (b"\x89PNG\r\n\x1a\n", "cut short"),
        (b"\xff\xd8\xff", "cut short"),
        (JPEG[:10], "cut short"),
        (b"GIF89a\1", "cut short"),
        (struct.pack(">8sIIII", b"\x89PNG\r\n\x1a\n", 13, 0, 10_000, 10_000), "pixels"),
        (struct.pack(">8sIIII", b"\x89PNG\r\n\x1a\n", 13, 0, 0, 10), "pixels"),
        (png(1, 1) + bytes(images.MAX_BYTES), "bytes"),
    ],
)
def test_what_is_no_image(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Image(data)


class Screen(Session[Task]):
    """Shows a screen."""

    @tool
    def look(self) -> list[Any]:
        """Look."""
        return ["left", Image(png(2, 2)), {"scrolled": 1}, Image(png(3, 3))]

    @tool
    def glance(self) -> Any:
        """Look at one."""
        return Image(png(4, 4))

    async def call_unknown_tool(self, name: str, arguments: str) -> list[str | Image] | None:
        return ["right", Image(png(5, 5))] if name == "peek" else None

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(len(reply.tool_outputs) == 3))


class Steps(Episode[Task]):
    """Shows a screen step by step."""

    async def step(self, reply: Reply) -> Step:
        outputs = {call.call_id: ["seen", Image(png(2, 2))] for call in reply.function_calls}
        return Step(tool_outputs=outputs, reward=1.0, terminated=not outputs)


def part(width: int) -> dict[str, str]:
    data = base64.b64encode(png(width, width)).decode()
    return {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}


def said(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("shape", "agent", "expected"),
    [
        (
            Screen,
            "tool_loop",
            {
                "look": [said("left"), part(2), said('{"scrolled":1}'), part(3)],
                "glance": [part(4)],
                "peek": [said("right"), part(5)],
            },
        ),
        (Steps, "step_loop", {"look": [said("seen"), part(2)]}),
    ],
)
async def test_the_model_and_the_row_have_them(shape: Any, agent: str, expected: dict[str, Any]) -> None:
    engine = Engine(answer(*[function_call(name) for name in expected]), answer("done"))
    line = json.dumps({"responses_create_params": {"input": "?"}}).encode()
    async with small_system() as system:
        await system.add_resource(environment(Environment(resource=shape, description="")))
        await system.add_model(engine)
        await system.add_agent({"tool_loop": ToolLoop(), "step_loop": StepLoop()})
        (record,) = await system.make(rollout_spec(line, agent=agent))
    assert record.reward is not None, record.outcome
    outputs = [one for one in json.loads(bytes(record.row))["response"]["output"] if "output" in one]
    assert {one["call_id"].removeprefix("call_"): one["output"] for one in outputs} == expected
    _, (call, _) = engine.calls.items
    assert [json.loads(bytes(raw)).get("output") for raw in call.input][-len(expected) :] == [
        *expected.values()
    ]
