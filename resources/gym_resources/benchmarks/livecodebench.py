"""Programming problems of contests, each with its date (LiveCodeBench): generation of code.

``livecodebench`` is the authors' release 6 from August 2024 on, ``livecodebench:v5`` release 5 of August 2024
to January 2025. The verifier is `code_gen`'s: the program behind the last fence must pass all public and
private tests, in the sandbox. The prompt is the authors' for chat models. The score is pass@1, the mean over
a problem's rollouts, and the same by difficulty. Repeats: NeMo Gym makes 3 rollouts of a problem, the authors
made 10.

Private tests are published as pickled text; no class is looked up while they are read, so that a file cannot
run code. Source: Jain et al. 2024, arXiv:2403.07974; github.com/LiveCodeBench/LiveCodeBench,
``lcb_runner/prompts`` (MIT). The problems belong to the contests' organizers; the example rows are our own.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import code_gen
from gym_resources.benchmarks.scoring.shares import by_category

SYSTEM = """\
You are an expert Python programmer. You will be given a question (problem specification) and will generate \
a correct Python program that matches the specification and passes all tests. You will NOT return anything \
except for the program."""
PROMPT = """\
### Question:
{question}

### Format: {answer_format}

### Answer: (use the provided format with backticks)

"""
FUNCTION = """\
You will use the following starter code to write the solution to the problem and enclose your code within \
delimiters.
```python
{starter_code}
```"""
PROGRAM = """\
Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the \
sample inputs). Enclose your code within delimiters as follows.
```python
# YOUR CODE HERE
```"""
TESTS_BYTES_AT_MOST = 1 << 30


class _Plain(pickle.Unpickler):
    """Reads texts, numbers and containers; a pickle that names a class or a function is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise ValueError(f"the tests name {module_name}.{global_name}, which is not looked up")


def rows(*files: Iterator[dict[str, Any]], first: str, before: str) -> Iterator[dict[str, Any]]:
    """The problems of contests from the date ``first`` up to ``before``."""
    for one in chain(*files):
        if not first <= one["contest_date"] < before:
            continue
        cases = [*json.loads(one["public_test_cases"]), *private_tests(one["private_test_cases"])]
        starter, function = one["starter_code"], json.loads(one["metadata"]).get("func_name")
        tests = {
            "inputs": [case["input"] for case in cases],
            "outputs": [case["output"] for case in cases],
            "fn_name": function,
        }
        yield {
            "question": one["question_content"],
            "answer_format": FUNCTION.format(starter_code=starter) if starter else PROGRAM,
            "difficulty": one["difficulty"],
            "contest_date": one["contest_date"],
            "question_id": one["question_id"],
            "verifier_metadata": {"unit_tests": tests},
        }


def private_tests(text: str) -> list[dict[str, str]]:
    """The cases in a problem's ``private_test_cases``: JSON, or base64 of deflated pickled JSON."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    inflating = zlib.decompressobj()
    pickled = inflating.decompress(base64.b64decode(text), TESTS_BYTES_AT_MOST)
    if inflating.unconsumed_tail:
        raise ValueError(f"the private tests are larger than {TESTS_BYTES_AT_MOST} bytes")
    return json.loads(_Plain(io.BytesIO(pickled)).load())


def _source(name: str, before: str, file: str, *further_files: str) -> DatasetSource:
    return DatasetSource(
        repo_id="livecodebench/code_generation_lite",
        file=file,
        further_files=further_files,
        split="benchmark",
        license="CC",
        name=name,
        rows=partial(rows, first="2024-08-01", before=before),
    )


environment = replace(
    code_gen.environment,
    description="Programming problems of contests since August 2024, run on hidden tests (LiveCodeBench).",
    repeats=3,
    benchmark=Benchmark(
        prompt=PROMPT,
        system=SYSTEM,
        score=partial(by_category, field="difficulty"),
        fields=("difficulty",),
    ),
    data_license="CC",
    datasets=(
        _source("", "2025-06-01", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
        _source("v5", "2025-02-01", "test4.jsonl", "test5.jsonl"),
    ),
    agent_refs=(),
)
