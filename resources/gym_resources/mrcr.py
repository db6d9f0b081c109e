"""One of several equal requests of a long conversation, to be answered again word for word (MRCR).

The reply must begin with ``random_string_to_prepend``; else the reward is 0. Else it is the ratio of Python's
``difflib.SequenceMatcher`` of what follows it and what follows it in ``expected_answer``. Long texts are
compared in a process that is killed after 30 seconds; then the rollout has failed. The score is the mean, and
the same by the number of needles.

Rows and rewards are those of NeMo Gym's environment of this name. Source: OpenAI's MRCR (MIT; the data set
openai/mrcr, with its ``grade``); the example rows are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from gym_runtime import (
    Benchmark,
    DatasetSource,
    Environment,
    Reply,
    ResourceError,
    Task,
    Verdict,
    run_isolated,
)

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.extract.overlap import ratio

SHORT_CHARS = 500
LIMIT_S = 30.0
FILES = tuple(f"{needles}needle/{needles}needle_{part}.parquet" for needles in (2, 4, 8) for part in (0, 1))


class NeedleTask(Task):
    expected_answer: str
    random_string_to_prepend: str
    n_needles: int | None = None

    def __post_init__(self) -> None:
        if not self.random_string_to_prepend:
            raise ValueError("'random_string_to_prepend' is empty")


async def verify(task: NeedleTask, reply: Reply) -> Verdict:
    said, mark = reply.joined_text, task.random_string_to_prepend
    if not said.startswith(mark):
        return Verdict(0.0, fields={"prefix_found": False})
    given, wanted = said.removeprefix(mark), task.expected_answer.removeprefix(mark)
    if max(len(given), len(wanted)) <= SHORT_CHARS:
        alike = ratio(given, wanted)
    else:
        try:
            alike = await run_isolated(ratio, given, wanted, timeout_s=LIMIT_S)
        except TimeoutError:
            raise ResourceError(
                f"the comparison took longer than {LIMIT_S:g} s, so the answer has no reward", stage="verify"
            ) from None
    return Verdict(alike, fields={"prefix_found": True})


def rows(*files: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in chain(*files):
        yield {
            "responses_create_params": {"input": json.loads(one["prompt"])},
            "expected_answer": one["answer"],
            "random_string_to_prepend": one["random_string_to_prepend"],
            "n_needles": one["n_needles"],
            "n_chars": one["n_chars"],
        }


environment = Environment(
    resource=verify,
    description="Say an earlier answer of a long conversation again, word for word (MRCR).",
    domain="long_context",
    reads_input=False,
    agent="single_turn",
    benchmark=Benchmark(score=partial(by_category, field="n_needles"), fields=("n_needles",)),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="openai/mrcr",
            file=FILES[0],
            further_files=FILES[1:],
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
)
