r"""Abstraction and reasoning in two modes: the rule as a Python function, or the grid that it makes.

The row's ``agent_mode``, or else the agent that its ``agent_ref`` names (``nvarc_inductive…``,
``nvarc_transductive…``), says which:

- ``transductive``: the answer is the grid in the last ``\boxed{}``, its rows separated by line breaks, the
  values of a row by blanks, commas or nothing; or as a list of lists.
- ``inductive``: the answer is the last fenced block of code that defines ``transform``, else the last block,
  else the whole text. ``transform`` is called in a sandbox with ``test_input`` only, which may take
  ``python_timeout_seconds``, and what it returns is compared outside of it. It may use NumPy, SciPy and
  PyTorch where they are installed, and return an array.

The reward is 1 if the grid is ``expected_output`` in every cell. The pairs in ``train`` are not run.

Rows and modes are those of NeMo Gym's environment of this name; how a grid may be written, and that the test
alone decides, are our reading of its README and prompts. Its code runs here in a sandbox. Source: the rows
and the README of NeMo Gym's ``nvarc``, after the Abstraction and Reasoning Corpus
(github.com/fchollet/ARC-AGI, Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

import msgspec
from anyio import to_thread
from gym_runtime import Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.code.fenced_programs import defining_program
from gym_resources.extract import jsons
from gym_resources.extract.boxed import last_boxed

Grid = list[list[int]]
Mode = Literal["transductive", "inductive"]

LONGEST = 100_000
"""The most characters of a grid that is read."""
PACKAGES = ("numpy", "scipy", "torch")
FUNCTION = "transform"
CALLED = "gym_transformed"
AS_LISTS = f"""

def {CALLED}(grid):
    made = {FUNCTION}(grid)
    return made.tolist() if hasattr(made, "tolist") else made
"""
_ROW = re.compile(r"\d+|\d{1,4}(?:[\s,]+\d{1,4})*+", re.ASCII)


class GridTask(Task):
    """A grid to transform by the rule of some pairs.

    Attributes:
        agent_mode: what the answer is: the grid, or a function that makes it.
        python_timeout_seconds: how long the function may take.
    """

    test_input: Grid
    expected_output: Annotated[list[Annotated[list[int], Meta(min_length=1)]], Meta(min_length=1)]
    agent_mode: Mode = "transductive"
    python_timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 30.0


def grid(text: str) -> Grid | None:
    r"""The grid in the last box; None without one.

    >>> grid(r"\boxed{1 2" "\n" r"3 4}"), grid(r"\boxed{12" "\n" r"34}"), grid(r"\boxed{[[1, 2], [3, 4]]}")
    ([[1, 2], [3, 4]], [[1, 2], [3, 4]], [[1, 2], [3, 4]])
    """
    content = (last_boxed(text) or "").strip()
    if len(content) > LONGEST:
        return None
    if content.startswith("["):
        return jsons.decode(content, Grid)
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines or not all(_ROW.fullmatch(line) for line in lines):
        return None
    return [cells(line) for line in lines]


def cells(line: str) -> list[int]:
    """The values of a line: digits, one a value where nothing separates them."""
    values = line.replace(",", " ").split()
    return [int(value) for value in (values[0] if len(values) == 1 else values)]


def same(value: Any, expected: Grid) -> bool:
    """Whether a returned value is the grid; tuples are as good as lists."""
    return [as_list(row) for row in as_list(value)] == expected


def as_list(value: Any) -> list[Any]:
    """The members of a list or a tuple; none of anything else."""
    return list(cast("list[Any] | tuple[Any, ...]", value)) if isinstance(value, list | tuple) else []


async def verify(task: GridTask, reply: Reply) -> Verdict:
    text = reply.joined_text
    if task.agent_mode == "inductive":
        return await run(task, text)
    answer = grid(text)
    return Verdict(float(answer == task.expected_output), fields={"extracted_answer": answer})


async def run(task: GridTask, text: str) -> Verdict:
    """The verdict on a text with a function."""
    from gym_resources.code.function_calls import Call, run_calls

    code = await to_thread.run_sync(defining_program, text, FUNCTION)
    if FUNCTION not in code:
        return Verdict(0.0, fields={"extracted_model_code": None, "result": "no code"})
    outcome = await run_calls(
        Call(code + AS_LISTS, CALLED, [[task.test_input]]),
        lambda _, value: same(value, task.expected_output),
        [len(msgspec.json.encode(task.expected_output))],
        call_limit_s=task.python_timeout_seconds,
        packages=PACKAGES,
    )
    passes = outcome.status == "passed"
    return Verdict(float(passes), fields={"extracted_model_code": code, "result": outcome.status})


environment = Environment(
    resource=verify,
    description="Apply the rule behind pairs of grids, as a grid or as a Python function (NVARC).",
    domain="knowledge",
    agent="single_turn",
    agent_settings={f"nvarc_{mode}": {"agent_mode": mode} for mode in ("inductive", "transductive")},
    extra="sandbox",
    data_license="Apache-2.0",
)
