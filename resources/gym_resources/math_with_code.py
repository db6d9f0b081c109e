r"""Mathematics problems that a model solves with a Python session.

``execute_python`` runs code in a session that keeps its variables (``np``, ``scipy`` and ``pd`` are
there where these libraries are installed) and answers what was printed, or the error; ``end_session`` ends
it. The answer is the last ``\boxed{}`` of the last message that has one with something in it, else that of
the last tool output that has one (in its ``stdout``, if it is a JSON object). The reward is 1 if it is the
row's ``expected_result``: the same text, whatever the amount of its spaces and a pair of ``\(…\)``, of ``$``
and of ``\text{…}`` around it, or a number that differs by less than a millionth of it, or of 1 if that is
more; ``expected_code_contains`` is ignored.

Rows, tools and rewards are those of NeMo Gym's environment of this name. Here the session is a process in a
sandbox; code may take 10 seconds, after which it is interrupted, or killed with all its variables if it will
not stop.
Source: the rule of NeMo Gym's ``math_with_code``; the rows are our own.
"""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import msgspec
from gym_runtime import Environment, Reply, Session, Task, Text, Verdict, tool
from gym_runtime.messages import FunctionCallOutput
from gym_sandbox import Interpreter
from msgspec import Meta

from gym_resources.extract import jsons
from gym_resources.extract.boxed import last_boxed

EXECUTION_LIMIT_S = 10.0
TOLERANCE = 1e-6
PACKAGES = ("numpy", "scipy", "pandas")
ALIASES = {"np": "numpy", "numpy": "numpy", "scipy": "scipy", "pd": "pandas", "pandas": "pandas"}
AROUND = ((r"\(", r"\)"), ("$", "$"), (r"\text{", "}"))

Code = Annotated[
    str, Meta(title="Python Code", description="The Python code to execute for the calculation.")
]


class MathTask(Task):
    expected_result: str


class MathSession(Session[MathTask]):
    async def open(self) -> None:
        self.interpreter = Interpreter(packages=PACKAGES, aliases=ALIASES)

    @tool
    async def execute_python(self, code: Code) -> Text:
        """Execute Python code to perform calculations. You have access to numpy, scipy, pandas."""
        done = await self.interpreter.execute(code, EXECUTION_LIMIT_S)
        return Text(done.stdout + (done.error or ""))

    @tool
    async def end_session(self) -> Text:
        """End the Python session."""
        await self.interpreter.close()
        return Text("Session ended.")

    async def verify(self, reply: Reply) -> Verdict:
        answer = last_answer(reply)
        right = answer is not None and same(answer, self.task.expected_result)
        return Verdict(float(right), fields={"extracted_answer": answer, "accuracy": float(right)})

    async def close(self) -> None:
        await self.interpreter.close()


class Printed(msgspec.Struct):
    stdout: msgspec.Raw = msgspec.Raw(b'""')


def last_answer(reply: Reply) -> str | None:
    """The last box with something in it: the messages from the last to the first, then the outputs from the
    last to the first.
    """
    said = (message.text for message in reversed(reply.messages))
    printed = map(stdout, reversed(reply.tool_outputs))
    boxes = ((last_boxed(text) or "").strip() for text in chain(said, printed))
    return next(filter(None, boxes), None)


def stdout(output: FunctionCallOutput) -> str:
    """The text that a tool printed: the output, or its ``stdout`` field."""
    if not isinstance(output.output, str):
        return ""
    found = jsons.decode(output.output, Printed)
    return output.output if found is None else jsons.decode(bytes(found.stdout), str) or ""


def same(answer: str, expected: str) -> bool:
    ours, theirs = _normal(answer), _normal(expected)
    if ours == theirs:
        return True
    try:
        difference, wanted = abs(float(ours) - float(theirs)), abs(float(theirs))
    except ValueError:
        return False
    return difference < TOLERANCE * max(1.0, wanted)


def _normal(text: str) -> str:
    text = text.strip()
    for opening, closing in AROUND:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening + closing):
            text = text[len(opening) : -len(closing)].strip()
    return " ".join(text.split())


environment = Environment(
    resource=MathSession,
    description="Mathematics problems, solved with a Python session in a sandbox.",
    domain="math",
    data_license="Apache-2.0 (own rows)",
    extra="sandbox",
)
