"""The smallest environment with a tool: the weather, which is cold everywhere.

It checks that a rollout with a tool call completes; the reward is always 1. Rows have
no fields of their own. Rewards are those of NeMo Gym's environment of this name.
Source: the rule of NeMo Gym's ``example_single_tool_call``; the rows are our own.
"""

from __future__ import annotations

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool


class Weather(Session[Task]):
    @tool
    def get_weather(self, city: str) -> dict[str, str]:
        """Get the weather of a city."""
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(1.0)


environment = Environment(
    resource=Weather,
    description="Ask for the weather with one tool; the reward is always 1.",
    domain="agent",
    reads_input=False,
    data_license="Apache-2.0 (own rows)",
    silence_reward=1.0,
)
