"""A counter in three turns: an environment for models that call tools because they must."""

from __future__ import annotations

import json
from typing import Any

from gym_runtime import Environment, Reply, Session, Task, Verdict, tool

TURNS = 3


class CountingTask(Task):
    expected: int


class Counting(Session[CountingTask]):
    count = 0

    @tool
    def add(self, amount: int) -> dict[str, int]:
        """Add to the counter."""
        self.count += amount
        return {"count": self.count}

    async def verify(self, reply: Reply) -> Verdict:
        return Verdict(float(self.count == self.task.expected))


environment = Environment(resource=Counting, description="Count.", domain="agent", max_turns=TURNS)

# Where the grammar leaves a choice, noise goes on to the end, instead of filling the line with blanks or
# calling again and again: <|im_end|>, and then SmolLM2's tokens for the marks and digits of a call.
BIAS = {"2": 100} | dict.fromkeys(["18", "42", "109", "34", "35", "36"], 60)

ROW: dict[str, Any] = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "Add 2 to the counter, then 3, then 4."}],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add to the counter.",
                "parameters": {
                    "type": "object",
                    "properties": {"amount": {"enum": [2, 3, 4]}},
                    "required": ["amount"],
                    "additionalProperties": False,
                },
                "strict": True,
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "metadata": {"extra_body": json.dumps({"logit_bias": BIAS})},
    },
    "expected": 9,
}
