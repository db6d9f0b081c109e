"""The `openai` client at a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from faces.gateway.running_gateway import RunningGateway, standing
from gym_testing.small_system import answer, function_call, reasoning

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


TOOL: Any = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}


CALL = function_call("weather", '{"city": "Ulm"}', "call_1")


THINKS = answer(reasoning("hm"), "It rains.", id="resp_7")


CALLS = answer("Let me see.", CALL, function_call("weather", "{}", "call_2"))


CUT = answer("It r", status="incomplete", incomplete_details={"reason": "max_output_tokens"})


USER: Any = [{"role": "user", "content": "weather?"}]


@asynccontextmanager
async def client(stand: RunningGateway, rollout: str = "r.0.0") -> AsyncGenerator[Any]:
    import openai  # it takes a second, and each process of the tests collects every file

    base_url = f"{stand.url}{stand.at(rollout)}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


async def response(turn: Any, *, stream: bool, **more: Any) -> Any:
    """The client's response, put together from its events where it was streamed."""
    more = {"model": "policy", "input": "weather?", **more}
    async with standing(turn) as stand, client(stand) as made:
        if not stream:
            return await made.responses.create(**more)
        async with made.responses.stream(**more) as events:
            return await events.get_final_response()
