"""Code with a gap: the model writes what is missing between a prefix and a suffix (HumanEval-Infilling).

The completion is the last fenced block of the reply, as it is written; if that is not right, without what
repeats the end of the prefix or the beginning of the suffix, which NeMo Gym takes off in any case. A reply
without a closed block is worth 0. Prefix, completion and suffix are a program whose function is called as by
`evalplus`: in the sandbox, on inputs only, and its results are compared outside. The reward is 1 if all are
right.

``code_fim:multi_line``, ``:random_span`` and ``:random_span_light`` are the other ways in which the authors
cut. The tests are HumanEval's own inputs, with the results that HumanEval+ has for them; where these cannot
be told apart (six problems), all of HumanEval+'s. NeMo Gym executes the published test in the program itself,
where the program can end it; its rows, which name a test without having it, are refused. Source: Bavarian et
al. 2022, arXiv:2207.14255; github.com/openai/human-eval-infilling (MIT); the example rows are our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from gym_runtime import Benchmark, DatasetSource, Environment, Reply, Task, Verdict
from msgspec.structs import replace

from gym_resources.benchmarks import evalplus
from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.code.fenced_programs import between, closed_block
from gym_resources.code.function_tests import FunctionTests, from_humaneval
from gym_resources.code.published_functions import rows as readable

PROMPT = """\
A piece of this Python program is missing between its prefix and its suffix. Write the missing piece alone, \
in one ```python block, with the indentation that it needs; repeat neither prefix nor suffix.

Prefix:
```python
{prefix}
```

Suffix:
```python
{suffix}
```
"""
SPLITS = {
    "": "SingleLine",
    "multi_line": "MultiLine",
    "random_span": "RandomSpan",
    "random_span_light": "RandomSpanLight",
}


class GapTests(FunctionTests, frozen=True, kw_only=True):
    prefix: str
    suffix: str


class GapTask(Task):
    verifier_metadata: GapTests


async def verify(task: GapTask, reply: Reply) -> Verdict:
    gap = task.verifier_metadata
    written = closed_block(reply.joined_text.rpartition("</think>")[2])
    if written is None or not written.strip():
        return Verdict(0.0, fields={"extracted_model_code": None, "result": "no code", "tests_passed": 0})
    piece, *others = between(gap.prefix, written, gap.suffix)
    outcome = await evalplus.outcome(gap, gap.prefix + piece + gap.suffix)
    for other in others:
        if outcome.status != "passed":
            piece, outcome = other, await evalplus.outcome(gap, gap.prefix + other + gap.suffix)
    return Verdict(
        float(outcome.status == "passed"),
        fields={
            "extracted_model_code": piece,
            "result": outcome.status,
            "tests_passed": outcome.passed,
        },
    )


def rows(
    gaps: Iterator[dict[str, Any]], plus: Iterator[dict[str, Any]], humaneval: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A row for each gap, whose ``task_id`` has that of the problem in it (``…/HumanEval/0/L0``)."""
    originals = {one["task_id"]: one["test"] for one in humaneval}
    problems = {one["task_id"]: one for one in plus}

    def made(gap: dict[str, Any]) -> tuple[str, GapTests]:
        problem = problems["/".join(gap["task_id"].split("/")[1:3])]
        _, tests = from_humaneval(problem, originals.get(problem["task_id"], ""))
        fields = msgspec.structs.asdict(tests)
        if tests.base:
            fields["inputs"] = tests.inputs[: tests.base]
            fields["outputs"] = tests.outputs and tests.outputs[: tests.base]
        fields |= {"task_id": gap["task_id"], "given": "", "prefix": gap["prompt"], "suffix": gap["suffix"]}
        return "", GapTests(**fields)

    for row in readable(gaps, made_by=made):
        tests = row["verifier_metadata"]
        yield {"verifier_metadata": tests, "prefix": tests["prefix"], "suffix": tests["suffix"]}


PLUS, *_ = evalplus.environment.datasets
environment = Environment(
    resource=verify,
    description="The missing piece of a Python program, between what is before and behind it (infilling).",
    domain="coding",
    agent="single_turn",
    benchmark=Benchmark(prompt=PROMPT, score=accuracy),
    data_license="MIT",
    extra="sandbox",
    agent_refs=("human_eval_infilling",),
    datasets=tuple(
        DatasetSource(
            repo_id="loubnabnl/humaneval_infilling",
            file=f"data/HumanEval-{cut}Infilling.jsonl.gz",
            further_sources=(replace(PLUS, further_sources=()), evalplus.HUMANEVAL),
            split="benchmark",
            license="MIT",
            name=name,
            rows=rows,
        )
        for name, cut in SPLITS.items()
    ),
)
