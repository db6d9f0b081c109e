r"""Mathematics problems that a model solves with a Python session.

``execute_python`` runs code in a session that remembers what was defined (``np``, ``scipy`` and ``pd`` are
there where these libraries are installed) and answers what was printed, or the error; ``end_session`` ends
it. The answer is the last ``\boxed{}`` in the assistant's messages, else what the last code that printed
something printed: the last box in that, or all of it. The reward is 1 if it is the row's
``expected_result``: the same text, whatever its spaces, case, ``$`` or ``\(`` around it, or the same number
up to a millionth of it; what ``expected_code_contains`` says is not looked at.

Rows, tools and rewards as its namesake in NeMo Gym. Unlike there, the session is a process in a sandbox;
code may take 10 seconds, after which it is interrupted, or killed with all its variables if it will not stop.
Source: the rule of NeMo Gym's ``math_with_code``; the rows are our own.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from gym_runtime import Environment, Reply, Session, Task, Text, Verdict, tool
from gym_runtime.sandbox import Interpreter
from msgspec import Meta

from gym_resources.extract.boxed import last_boxed

EXECUTION_LIMIT_S = 10.0
TOLERANCE = 1e-6
PACKAGES = ("numpy", "scipy", "pandas")
ALIASES = {"np": "numpy", "numpy": "numpy", "scipy": "scipy", "pd": "pandas", "pandas": "pandas"}
AROUND = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_SPACE = re.compile(r"\s+|\\[,;! ]")

Code = Annotated[
    str, Meta(title="Python Code", description="The Python code to execute for the calculation.")
]


class MathTask(Task):
    expected_result: str


class MathSession(Session[MathTask]):
    async def open(self) -> None:
        self.interpreter = Interpreter(packages=PACKAGES, aliases=ALIASES)
        self.printed = ""

    @tool
    async def execute_python(self, code: Code) -> Text:
        """Execute Python code to perform calculations. You have access to numpy, scipy, pandas."""
        done = await self.interpreter.execute(code, EXECUTION_LIMIT_S)
        if done.error is None and done.stdout.strip():
            self.printed = done.stdout
        return Text(done.stdout + (done.error or ""))

    @tool
    async def end_session(self) -> Text:
        """End the Python session."""
        await self.interpreter.close()
        return Text("Session ended.")

    async def verify(self, reply: Reply) -> Verdict:
        boxed = (last_boxed(text) for text in (reply.all_text, self.printed))
        answer = next((box for box in boxed if box is not None), self.printed.strip())
        return Verdict(float(same(answer, self.task.expected_result)), fields={"extracted_answer": answer})

    async def close(self) -> None:
        await self.interpreter.close()


def same(answer: str, expected: str) -> bool:
    ours, theirs = _normal(answer), _normal(expected)
    if ours == theirs:
        return bool(ours)
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=TOLERANCE)
    except ValueError:
        return False


def _normal(text: str) -> str:
    text = text.strip()
    for opening, closing in AROUND:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening + closing):
            text = text[len(opening) : -len(closing)]
            break
    return _SPACE.sub("", text).lower()


environment = Environment(
    resource=MathSession,
    description="Mathematics problems, solved with a Python session in a sandbox.",
    domain="math",
    extra="sandbox",
)
