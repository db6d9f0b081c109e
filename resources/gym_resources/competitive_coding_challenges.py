"""Problems of programming contests, solved in C++ and judged by tests (USACO, IOI, CCC).

The program is the reply's last closed fenced block. It is compiled with ``g++ -O2 -std=c++17`` together with
the row's ``files``, such as a grader with ``main`` and its header, and run on each of ``tests`` (``input``,
``output``) in a sandbox that sees the inputs only; a test may take ``time_limit`` seconds of the processor
times ``time_scale`` (2, as in NeMo Gym), and ``memory_limit`` megabytes. Outputs are compared line by line,
words as text or as decimal numbers. The reward is 1 if all tests pass, which are those of the row's
``subtask``; ``points`` are its ``subtask_score`` then, else 0.

Rows, subtasks and rewards are those of NeMo Gym's environment of this name, whose rows name problems of a
file of tests that is not published: a row without ``tests`` is refused. Checkers that accept several outputs
and interactive problems are not here. The rows are our own.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from gym_runtime import Environment, Reply, Task, Verdict
from msgspec import Meta

from gym_resources.code.compiled import require_compiler, run_compiled
from gym_resources.code.fenced_programs import closed_block
from gym_resources.code.program_tests import Case

SOLUTION = "solution.cpp"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class ContestTest(msgspec.Struct):
    input: str
    output: str


class ContestTask(Task):
    """A problem, or a subtask of one.

    Attributes:
        files: texts of files that are compiled with the program, by their names.
    """

    tests: list[ContestTest]
    subtask: str = "all_tests"
    subtask_score: float = 1.0
    time_limit: Annotated[float, Meta(gt=0, le=60)] = 2.0
    time_scale: Annotated[float, Meta(gt=0, le=20)] = 2.0
    memory_limit: Annotated[int, Meta(gt=0, le=3072)] = 1024
    files: dict[str, str] = {}  # noqa: RUF012 - a msgspec field, copied for each

    def __post_init__(self) -> None:
        if not self.tests:
            raise ValueError("'tests' is empty")
        for name in self.files:
            if name == SOLUTION or not _NAME.fullmatch(name):
                raise ValueError(f"'files' has a file that cannot be named {name[:40]!r}")


async def verify(task: ContestTask, reply: Reply) -> Verdict:
    code = closed_block(reply.joined_text.rpartition("</think>")[2])
    if code is None or not code.strip():
        about = {"extracted_model_code": None, "result": "no code", "tests_passed": 0, "points": 0.0}
        return Verdict(0.0, fields=about)
    outcome = await run_compiled(
        {**task.files, SOLUTION: code},
        [Case(test.input, test.output) for test in task.tests],
        test_limit_s=task.time_limit * task.time_scale,
        memory_bytes=task.memory_limit << 20,
    )
    passes = outcome.status == "passed"
    return Verdict(
        float(passes),
        fields={
            "extracted_model_code": code,
            "result": outcome.status,
            "error": outcome.error,
            "tests_passed": outcome.passed,
            "points": task.subtask_score * passes,
        },
    )


environment = Environment(
    resource=verify,
    description="Problems of programming contests, solved in C++ and judged by tests.",
    domain="coding",
    agent="single_turn",
    require=require_compiler,
    data_license="Apache-2.0 (own rows)",
)
