"""One tool call with several rewards: was it the right one, did it suit its tool, was there nothing else?

Each question is a component worth 0 or 1, for trainers that normalise each reward separately; the
reward is their sum, at most 3.
``correctness``   some call has the name of ``expected_call``, and its arguments contain all the expected ones
``schema_valid``  the first call's arguments are a JSON object with all that the tool of that name requires in
                  the row's own ``tools``; a tool that is not among them requires nothing
``format``        there is exactly one call and no message at all, not even an empty one
Without an ``expected_call`` correctness is 0. The components stand in ``reward_components`` and, for metrics,
at the top level of the result row. Nothing is executed: the call is the answer.

Rows and rewards are those of NeMo Gym's environment of this name; the example rows are our own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.messages import FunctionCall, Message

from gym_resources.extract import jsons

BYTES_AT_MOST = 100_000


class ExpectedCall(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


class Parameters(msgspec.Struct):
    required: list[str] = []


class Tool(msgspec.Struct):
    name: str = ""
    parameters: Parameters | None = None


_decode_tool = msgspec.json.Decoder(Tool).decode


class CallTask(Task):
    expected_call: ExpectedCall | None = None

    def __post_init__(self) -> None:
        self.required()

    def required(self) -> dict[str, set[str]]:
        """The required arguments of each tool of the row, by its name."""
        tools = [_decode_tool(tool) for tool in self.responses_create_params.tools]
        return {tool.name: set(tool.parameters.required if tool.parameters else ()) for tool in tools}


async def verify(task: CallTask, reply: Reply) -> Verdict:
    calls = reply.function_calls
    spoke = any(isinstance(item, Message) for item in reply.items)
    components = {
        "correctness": float(any(is_expected(call, task.expected_call) for call in calls)),
        "schema_valid": float(bool(calls) and suits(calls[0], task.required())),
        "format": float(len(calls) == 1 and not spoke),
    }
    return Verdict(sum(components.values()), components=components, fields=dict(components))


def is_expected(call: FunctionCall, expected: ExpectedCall | None) -> bool:
    arguments = given(call)
    if expected is None or call.name != expected.name or arguments is None:
        return False
    return all(
        name in arguments and equals(arguments[name], value) for name, value in expected.arguments.items()
    )


def equals(written: msgspec.Raw, value: object) -> bool:
    """Whether an argument is this value; a very long argument is not read."""
    return len(bytes(written)) <= BYTES_AT_MOST and msgspec.json.decode(written) == value


def suits(call: FunctionCall, required: dict[str, set[str]]) -> bool:
    """Whether a call has the arguments that its tool requires."""
    arguments = given(call)
    return arguments is not None and required.get(call.name, set()) <= arguments.keys()


def given(call: FunctionCall) -> dict[str, msgspec.Raw] | None:
    return jsons.decode(call.arguments, dict[str, msgspec.Raw])


environment = Environment(
    resource=verify,
    description="Call the right tool with the right arguments; three rewards, added up.",
    domain="agent",
    data_license="Apache-2.0 (own rows)",
    agent="single_turn",
    gold_reward=3.0,
)
