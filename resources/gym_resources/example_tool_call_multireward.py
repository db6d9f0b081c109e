"""One tool call with several rewards: was it well formed, was it the right tool, were its arguments right?

Each question is a component worth 0 or 1, for trainers that normalise rewards apart from one another; the
reward is their sum, at most 3. ``format_reward``: the model made exactly one call, and its tool takes the
arguments. ``tool_reward``: its first call is of ``expected_tool``. ``arguments_reward``: moreover, its
arguments are ``expected_arguments``. The components stand in ``reward_components`` and, for metrics, at the
top level of the result row.

Shape and fields of the result as its namesake in NeMo Gym; tools and rows are our own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

from gym_resources.extract import jsons


class CallTask(Task):
    expected_tool: str
    expected_arguments: dict[str, Any]


class City(msgspec.Struct, forbid_unknown_fields=True):
    city: str


class Forecast(City):
    unit: Literal["celsius", "fahrenheit"]


ARGUMENTS: dict[str, type[City]] = {"get_local_time": City, "get_weather": Forecast}


class Desk(Session[CallTask]):
    @tool
    def get_local_time(self, city: str) -> dict[str, str]:
        """Get the local time of a city."""
        return {"city": city, "local_time": "12:00"}

    @tool
    def get_weather(self, city: str, unit: Literal["celsius", "fahrenheit"]) -> dict[str, str | int]:
        """Get the weather of a city, in a unit of temperature."""
        return {"city": city, "temperature": {"celsius": 0, "fahrenheit": 32}[unit], "unit": unit}

    async def verify(self, reply: Reply) -> Verdict:
        components = self.components(reply)
        return Verdict(sum(components.values()), components=components, fields=dict(components))

    def components(self, reply: Reply) -> dict[str, float]:
        calls = reply.function_calls
        first = calls[0] if calls else None
        takes = ARGUMENTS.get(first.name) if first else None
        fits = first is not None and takes is not None and jsons.decode(first.arguments, takes) is not None
        right_tool = first is not None and first.name == self.task.expected_tool
        given = jsons.decode(first.arguments, dict[str, Any]) if first else None
        return {
            "format_reward": float(fits and len(calls) == 1),
            "tool_reward": float(right_tool),
            "arguments_reward": float(right_tool and given == self.task.expected_arguments),
        }


environment = Environment(
    resource=Desk,
    description="Call the right tool with the right arguments; three rewards, added up.",
    domain="agent",
    gold_reward=3.0,
)
