"""Python functions that use many libraries, judged by unit tests (BigCodeBench): 1,140, 148 of them hard.

The program is the last fenced block that defines ``entry_point``, else the last block; ``code_prompt`` goes
before it in any case, as in the authors' calibrated evaluation. Program and tests run together in a sandbox
without a network, within four minutes. The reward is 1 if each test case of the published test has run and
passed; one that is skipped has not. The score is pass@1. ``bigcodebench:hard`` has the hard ones.

A row whose imports are not installed beside the worker is a failure that names them, not a reward of 0: the
authors' libraries are listed in their ``requirements-eval.txt``. Newer versions than theirs, for Python 3.10,
fail some published tests; NeMo Gym keeps an environment with theirs. Tests that need the network fail.

Rows and rewards are those of NeMo Gym's environment of this name. The tests replace what the program calls,
so they share its process: a program that returns what equals everything, or searches that process, may pass.
Source: Zhuo et al. 2024, arXiv:2406.15877 (Apache-2.0), v0.1.4; the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from anyio import to_thread
from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, TaskError, Verdict

from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.code.fenced_programs import defining_program
from gym_resources.code.libraries import LIBRARIES, missing, test_methods

PROMPT = """\
Please provide a self-contained Python script that solves the following problem in a markdown code block:
{instruct_prompt}
"""
LIMIT_S = 240.0


class UnitTests(msgspec.Struct, frozen=True):
    test: str
    code_prompt: str
    entry_point: str = "task_func"
    task_id: str = ""
    split: str | None = None


class LibraryTask(Task):
    verifier_metadata: UnitTests

    def __post_init__(self) -> None:
        if not test_methods(self.verifier_metadata.test):
            raise ValueError("'test' has no test case that can be read")


async def verify(task: LibraryTask, reply: Reply) -> Verdict:
    from gym_resources.code.asserted import asserted

    tests = task.verifier_metadata
    text = reply.joined_text.rpartition("</think>")[2]
    code = await to_thread.run_sync(defining_program, text, tests.entry_point)
    if not code.strip():
        return Verdict(0.0, fields={"extracted_model_code": None, "result": "no code", "tests_passed": 0})
    absent = await to_thread.run_sync(missing, tests.test, tests.code_prompt)
    if absent:
        raise TaskError(f"{tests.task_id} needs modules that are not installed here: {', '.join(absent)}")
    found = await asserted(
        f"{tests.code_prompt}\n    pass\n{code}",
        [tests.test],
        unittest=True,
        limit_s=LIMIT_S,
        packages=LIBRARIES,
    )
    passes = found.passed == found.ran == test_methods(tests.test)
    result = "passed" if passes else found.error or "not all tests ran"
    return Verdict(
        float(passes),
        fields={"extracted_model_code": code, "result": result, "tests_passed": found.passed},
    )


def rows(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each problem."""
    for one in records:
        tests = {name: one[name] for name in ("task_id", "test", "entry_point", "code_prompt")}
        yield {"instruct_prompt": one["instruct_prompt"], "verifier_metadata": tests}


environment = Environment(
    resource=verify,
    description="Python functions that use many libraries, judged by unit tests (BigCodeBench).",
    domain="coding",
    agent="single_turn",
    benchmark=Benchmark(prompt=PROMPT, score=accuracy),
    data_license="Apache-2.0",
    extra="sandbox",
    datasets=tuple(
        DatasetSource(
            repo_id=f"bigcode/bigcodebench{suffix}",
            file="data/v0.1.4-00000-of-00001.parquet",
            split="benchmark",
            license="Apache-2.0",
            name=name,
            rows=rows,
        )
        for name, suffix in (("", ""), ("hard", "-hard"))
    ),
)
