"""One tool call with several rewards: was it the right one, did it suit its tool, was there nothing else?

Each question is a component worth 0 or 1, for trainers that normalise rewards apart from one another; the
reward is their sum, at most 3.
``correctness``   some call is of ``expected_tool`` with ``expected_arguments``
``schema_valid``  the first call's arguments are a JSON object with all that its tool requires
``format``        there is exactly one call, and no text
The components stand in ``reward_components`` and, for metrics, at the top level of the result row. Nothing is
executed: the call is the answer.

Components as its namesake in NeMo Gym; tools and rows are our own.
"""

from __future__ import annotations

from typing import Any, Literal

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool
from gym_runtime.messages.items import FunctionCall

from gym_resources.extract import jsons


class CallTask(Task):
    expected_tool: str
    expected_arguments: dict[str, Any]


REQUIRED = {"get_local_time": {"city"}, "get_weather": {"city", "unit"}}


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
        calls = reply.function_calls
        components = {
            "correctness": float(any(map(self.is_expected, calls))),
            "schema_valid": float(bool(calls) and suits(calls[0])),
            "format": float(len(calls) == 1 and not reply.all_text.strip()),
        }
        return Verdict(sum(components.values()), components=components, fields=dict(components))

    def is_expected(self, call: FunctionCall) -> bool:
        return call.name == self.task.expected_tool and given(call) == self.task.expected_arguments


def suits(call: FunctionCall) -> bool:
    """Whether a call has the arguments that its tool requires."""
    arguments, required = given(call), REQUIRED.get(call.name)
    return arguments is not None and required is not None and required <= arguments.keys()


def given(call: FunctionCall) -> dict[str, Any] | None:
    return jsons.decode(call.arguments, dict[str, Any])


environment = Environment(
    resource=Desk,
    description="Call the right tool with the right arguments; three rewards, added up.",
    domain="agent",
    agent="single_turn",
    gold_reward=3.0,
)
