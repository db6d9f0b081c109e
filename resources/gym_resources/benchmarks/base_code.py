"""Python functions for base models, which go on with a program (21 base-model tasks).

A row's one message is the whole text; run it with ``--model-api completions``. ``base_code`` is HumanEval
(164 problems): the text is the function's head and docstring, and the reply its body. ``base_code:mbpp`` is
MBPP+ (378): three worked examples, each with its tests, then the task; the reply is the program. It ends
before the first of the row's ``stops``, which the engine is told, too.

Tests, sandbox and score are those of `evalplus`: ``plus`` is the share that passes all tests, and ``base`` of
those that pass the original benchmark's own, which is the figure that base models are reported with. The
reward is that of all tests. Of MBPP, only the problems that MBPP+ kept are here.

The forms are lm-evaluation-harness's (MIT). MBPP's worked examples are the first three of its split
``prompt``. Sources: Chen et al. 2021, arXiv:2107.03374 (MIT); Austin et al. 2021, arXiv:2108.07732
(CC-BY-4.0); Liu et al. 2023, arXiv:2305.01210 (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from gym_runtime import Benchmark, DatasetSource, Reply, Verdict
from msgspec.structs import replace

from gym_resources.benchmarks import evalplus
from gym_resources.code.function_tests import from_mbpp
from gym_resources.code.published_functions import humaneval_rows, rows
from gym_resources.published_sets.written import asked, before

BODY_ENDS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
PROGRAM_ENDS = ("[DONE]",)
LIMIT = 1024


class ProgramTask(evalplus.FunctionTask, kw_only=True):
    """A function's beginning, or a task.

    Attributes:
        stops: the program ends before the first of these.
    """

    stops: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each


async def verify(task: ProgramTask, reply: Reply) -> Verdict:
    written = before(reply.all_text, task.stops)
    given = task.verifier_metadata.given if written.strip() else ""
    return await evalplus.judged(task.verifier_metadata, given + written)


def bodies(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in humaneval_rows(*files):
        tests = row["verifier_metadata"]
        yield asked(tests["given"], BODY_ENDS, LIMIT, verifier_metadata=tests)


def programs(
    problems: Iterator[dict[str, Any]], worked: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    shown = "".join(
        f"{request(one['text'], one['test_list'])}{one['code'].replace(chr(13), '')}\n[DONE]\n\n"
        for one in islice(worked, 3)
    )
    listed: dict[str, str] = {}

    def kept() -> Iterator[dict[str, Any]]:
        for one in problems:
            listed[f"Mbpp/{one['task_id']}"] = request(one["prompt"], one["test_list"])
            yield one

    for row in rows(kept(), made_by=from_mbpp):
        tests = row["verifier_metadata"]
        yield asked(shown + listed[tests["task_id"]], PROGRAM_ENDS, LIMIT, verifier_metadata=tests)


def request(task: str, tests: list[str]) -> str:
    """A task with three of its tests, up to where the program goes."""
    return (
        f"You are an expert Python programmer, and here is your task: {task} Your code should pass these "
        "tests:\n\n" + "\n".join(tests[:3]) + "\n[BEGIN]\n"
    )


HUMANEVAL, MBPP = evalplus.environment.datasets
WORKED = DatasetSource(
    repo_id="google-research-datasets/mbpp",
    file="full/prompt-00000-of-00001.parquet",
    split="benchmark",
    license="CC-BY-4.0",
)
environment = replace(
    evalplus.environment,
    resource=verify,
    description="Python functions for base models, which go on with a program (HumanEval, MBPP).",
    agent="single_turn",
    benchmark=Benchmark(score=evalplus.score, fields=(evalplus.BASE,)),
    datasets=(
        replace(HUMANEVAL, rows=bodies),
        replace(MBPP, further_sources=(WORKED,), rows=programs),
    ),
    agent_refs=(),
)
