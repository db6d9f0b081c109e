r"""Mathematics problems that a model solves with a Python session.

``execute_python`` runs code in a session that keeps its variables (``np``, ``scipy`` and ``pd`` are
there where these libraries are installed) and answers what was printed, or the error; ``end_session`` ends
it. The answer is the last ``\boxed{}`` of the last message that has one with something in it, else that of
the last tool output that has one (in its ``stdout``, if it is a JSON object). The reward is 1 if it is the
row's ``expected_result``: the same text, whatever the amount of its spaces and a pair of ``\(…\)``, of ``$``
and of ``\text{…}`` around it, or a number that differs by less than a millionth of it, or of 1 if that is
more; ``expected_code_contains`` is ignored. So ``\dfrac{1}{6}`` is not ``\frac{1}{6}`` (1 of the 5 example
rows refuses its answer in such a form). With ``strict``, which NeMo Gym lacks, fractions of whole numbers are
numbers: ``\frac``, ``\dfrac``, ``\tfrac`` and ``1/6``.

Rows, tools and rewards are those of NeMo Gym's environment of this name. Here the session is a process in a
sandbox; code may take 10 seconds, after which it is interrupted, or killed with all its variables if it will
not stop.
Source: the rule of NeMo Gym's ``math_with_code``; the rows are our own.
"""

from __future__ import annotations

import re
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
_FRACTION = re.compile(r"([-+]?)(?:\\[dt]?frac\{(\d{1,30})\}\{(\d{1,30})\}|(\d{1,30})/(\d{1,30}))", re.ASCII)
AROUND = ((r"\(", r"\)"), ("$", "$"), (r"\text{", "}"))

Code = Annotated[
    str, Meta(title="Python Code", description="The Python code to execute for the calculation.")
]


class MathTask(Task):
    expected_result: str
    strict: bool = False


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
        right = answer is not None and same(answer, self.task.expected_result, strict=self.task.strict)
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


def same(answer: str, expected: str, *, strict: bool = False) -> bool:
    r"""Whether two answers are the same text, or numbers; a fraction is one by the strict rule only.

    >>> same(r"\dfrac{1}{6}", "1/6", strict=True), same(r"\dfrac{1}{6}", "1/6"), same("1/0", "1", strict=True)
    (True, False, False)
    """
    ours, theirs = _normal(answer), _normal(expected)
    if strict:
        ours, theirs = _decimal(ours), _decimal(theirs)
    if ours == theirs:
        return True
    try:
        difference, wanted = abs(float(ours) - float(theirs)), abs(float(theirs))
    except ValueError:
        return False
    return difference < TOLERANCE * max(1.0, wanted)


def _decimal(text: str) -> str:
    """A fraction of whole numbers as a decimal; another text as it is."""
    found = _FRACTION.fullmatch("".join(text.split()))
    if found is None:
        return text
    over, under = (int(found[place] or found[place + 2]) for place in (2, 3))
    return f"{found[1]}{over / under!r}" if under else text


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
