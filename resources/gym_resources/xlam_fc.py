"""Function calling in a single turn: the calls that the model makes, compared with those that were expected.

Calls are paired one to one, in order: each expected call takes the first call left that has its name and all
its arguments with equal values; further arguments of that call do not matter. The reward is 1 if every
expected call finds its match and no call is left over. A call whose arguments are not a JSON object matches
nothing. Nobody executes the calls: they are the answer.

Rows and rewards as its namesake in NeMo Gym. There the calls go to tools that do not exist, and the model
reads ``Not Found`` and may call again, which counts against it; here its first answer is judged.
Source: xLAM function calling (Salesforce/xlam-function-calling-60k, CC-BY-4.0); the example rows are our own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict

from gym_resources.extract import jsons


class Call(msgspec.Struct):
    """A call; ``arguments`` is None where a model's are no JSON object."""

    name: str
    arguments: dict[str, Any] | None

    def matches(self, expected: Expected) -> bool:
        given = self.arguments
        return (
            given is not None
            and self.name == expected.name
            and all(name in given and given[name] == value for name, value in expected.arguments.items())
        )


class Expected(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class XlamTask(Task):
    expected_answers: list[Expected]


async def verify(task: XlamTask, reply: Reply) -> Verdict:
    calls = [Call(call.name, jsons.decode(call.arguments, dict[str, Any])) for call in reply.function_calls]
    left = list(calls)
    for expected in task.expected_answers:
        match = next((index for index, call in enumerate(left) if call.matches(expected)), None)
        if match is not None:
            del left[match]
    correct = len(calls) - len(left)
    return Verdict(
        float(correct == len(task.expected_answers) == len(calls)),
        fields={
            "num_expected": len(task.expected_answers),
            "num_predicted": len(calls),
            "num_correct": correct,
            "predicted_calls": calls,
        },
    )


environment = Environment(
    resource=verify,
    description="Call the right functions with the right arguments, in one turn (xLAM).",
    domain="agent",
    agent="single_turn",
    data_license="CC-BY-4.0",
)
