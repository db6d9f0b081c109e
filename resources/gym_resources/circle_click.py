"""Look at an image of coloured circles and click on one of them with a tool.

The first click counts: the reward is 1 if it lies within the first circle of ``target_color``, its edge
included. A call whose coordinates are not two numbers does not count as a click. The image is an
``input_image`` part of the row's input and goes to the model unchanged.

Tool, rows and rewards are those of NeMo Gym's environment of this name. Unlike there, a row without a circle
of the wanted colour
is refused. Source: the rule of NeMo Gym's ``circle_click``; the rows, with their images, are our own.
"""

from __future__ import annotations

import math

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

from gym_resources.extract import jsons


class Circle(msgspec.Struct):
    x: float
    y: float
    radius: float
    color: str


class CircleTask(Task):
    circles: list[Circle]
    target_color: str

    def __post_init__(self) -> None:
        if self.target is None:
            raise ValueError(f"no circle has the target_color '{self.target_color}'")

    @property
    def target(self) -> Circle | None:
        return next((circle for circle in self.circles if circle.color == self.target_color), None)


class Click(msgspec.Struct):
    x: float
    y: float


class Circles(Session[CircleTask]):
    @tool
    def click(self, x: int, y: int) -> dict[str, bool]:
        """Click at pixel coordinates (x, y) in the image, counted from its top left corner."""
        return {"success": True}

    async def verify(self, reply: Reply) -> Verdict:
        calls = [call.arguments for call in reply.function_calls if call.name == "click"]
        click = next(
            filter(None, (jsons.decode(arguments, Click, strict=False) for arguments in calls)), None
        )
        target = self.task.target
        if click is None or target is None:
            return Verdict(0.0, fields={"distance": None})
        distance = math.hypot(click.x - target.x, click.y - target.y)
        return Verdict(float(distance <= target.radius), fields={"distance": distance})


environment = Environment(
    resource=Circles,
    description="Click on the circle of a given colour in an image.",
    domain="games",
    data_license="Apache-2.0 (own rows)",
)
