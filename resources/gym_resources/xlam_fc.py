"""Function calling in a single turn: the model's calls, compared with the expected ones.

Calls are paired one to one, in order: each expected call takes the first call left that has its name and all
its arguments with equal values; further arguments of that call do not matter. The reward is 1 if every
expected call finds its match and no call is left over. Arguments that are not JSON count as empty; JSON that
is not an object matches nothing. Nothing executes the calls: they are the answer. A row may write the
expected arguments as an object or as its JSON text.

With ``strict``, which NeMo Gym lacks, a call's further arguments must be parameters of its tool in the row,
and arguments that are not JSON match nothing.

Rows and rewards are those of NeMo Gym's environment of this name. There the calls go to tools that do not
exist, and the model reads ``Not Found`` and may call again, which counts against it; here its first answer is
judged.
Source: xLAM function calling (Salesforce/xlam-function-calling-60k, CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons


class Call(msgspec.Struct):
    """A call that the model made; ``arguments`` is None where they are JSON but not an object."""

    name: str
    arguments: dict[str, Any] | None


class Expected(msgspec.Struct):
    """A call to be made; ``arguments`` is an object after decoding, however the row writes it."""

    name: str
    arguments: dict[str, Any] | str

    def __post_init__(self) -> None:
        if isinstance(self.arguments, str):
            decoded = jsons.loads(self.arguments)
            if not isinstance(decoded, dict):
                raise ValueError(
                    f"the arguments of '{self.name}' are not JSON objects: {self.arguments:.100}"
                )
            self.arguments = cast("dict[str, Any]", decoded)

    def matches(self, call: Call) -> bool:
        wanted, given = cast("dict[str, Any]", self.arguments), call.arguments
        return (
            given is not None
            and call.name == self.name
            and all(name in given and given[name] == value for name, value in wanted.items())
        )


class Parameters(msgspec.Struct):
    properties: dict[str, Any] = {}


class OfferedTool(msgspec.Struct):
    """A tool of the row."""

    name: str = ""
    parameters: Parameters = msgspec.field(default_factory=Parameters)


class XlamTask(Task, kw_only=True):
    expected_answers: list[Expected]
    strict: bool = False

    def surplus(self, call: Call) -> bool:
        """Whether a call has arguments that are neither expected nor its tool's."""
        tools = [msgspec.json.decode(one, type=OfferedTool) for one in self.responses_create_params.tools]
        known = {name for tool in tools if tool.name == call.name for name in tool.parameters.properties}
        known.update(*(one.arguments for one in self.expected_answers if one.name == call.name))
        return call.arguments is not None and not call.arguments.keys() <= known


async def verify(task: XlamTask, reply: Reply) -> Verdict:
    strict = task.strict
    calls = [Call(call.name, _arguments(call.arguments, strict=strict)) for call in reply.function_calls]
    left = list(calls)
    for expected in task.expected_answers:
        match = next((index for index, call in enumerate(left) if expected.matches(call)), None)
        if match is not None:
            del left[match]
    correct = len(calls) - len(left)
    right = correct == len(task.expected_answers) == len(calls)
    if strict:
        right = right and not any(task.surplus(call) for call in calls)
    return Verdict(
        float(right),
        fields={
            "num_expected": len(task.expected_answers),
            "num_predicted": len(calls),
            "num_correct": correct,
            "predicted_calls": calls,
        },
    )


def _arguments(text: str, *, strict: bool) -> dict[str, Any] | None:
    value = jsons.loads(text)
    if value is jsons.INVALID:
        return None if strict else {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


environment = Environment(
    resource=verify,
    description="Call the right functions with the right arguments, in one turn (xLAM).",
    domain="agent",
    agent="single_turn",
    data_license="CC-BY-4.0",
)
