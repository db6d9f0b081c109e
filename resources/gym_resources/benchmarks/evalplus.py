"""Python functions with many more tests than HumanEval and MBPP had (EvalPlus): generation of code.

``evalplus`` is HumanEval+ (164 problems), ``evalplus:mbpp`` MBPP+ (378). The program is the last fenced block
that defines the function, else the last block, else the whole text; what the prompt gives stands before it
where it lacks the ``def``. The function runs in the sandbox, on inputs only, each within 4 seconds and all
within a minute; its results are compared outside, so a program that ends, patches or prints anything still
has to return the right values. The reward is 1 if base and additional tests pass. The score is pass@1, the
mean over a problem's rollouts: ``plus`` for all tests, and ``base`` for the original benchmark's own, told by
the ``test_list`` of MBPP+'s records and by HumanEval's own file. Six problems of HumanEval, whose tests draw
or compute their inputs, have no base score.

`prepare` reads the published test programs without running them; a problem whose test has more than literals
is left out with a warning that counts them. Where a test compares with a reference solution, that runs in a
sandbox of its own. Rows of NeMo Gym, which name a test without having it, are refused.

The prompt is the authors' for chat models, without the beginning of the answer that they prefill; they decode
greedily (``--temperature 0``), once. Different here: their limit is four times the reference's time, at least
a second; each float is compared with the published tolerance, which theirs keeps from the first float on.
Source: Liu et al. 2023, arXiv:2305.01210; github.com/evalplus/evalplus 0.3.1 (Apache-2.0). HumanEval is MIT,
MBPP CC-BY-4.0; the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import to_thread
from gym_runtime import Benchmark, DatasetSource, Environment, Reply, ScoredRollout, Task, TaskError, Verdict

from gym_resources.benchmarks.scoring.shares import by_task, mean
from gym_resources.code.called_inside import untagged
from gym_resources.code.fenced_programs import defining_program
from gym_resources.code.function_tests import FunctionTests, from_mbpp
from gym_resources.code.published_functions import humaneval_rows, rows
from gym_resources.code.returned_values import right

if TYPE_CHECKING:
    from gym_resources.code.program_tests import Outcome

PROMPT = """\
Please provide a self-contained Python script that solves the following problem in a markdown code block:
```
{problem}
```
"""
CALL_LIMIT_S = 4.0
PLUS, BASE = "is_correct_plus", "is_correct"


class FunctionTask(Task):
    verifier_metadata: FunctionTests


async def verify(task: FunctionTask, reply: Reply) -> Verdict:
    tests = task.verifier_metadata
    text = reply.joined_text.rpartition("</think>")[2]
    return await judged(tests, await to_thread.run_sync(defining_program, text, tests.function, tests.given))


async def judged(tests: FunctionTests, code: str) -> Verdict:
    """The verdict on a program."""
    if not code.strip():
        about = {"extracted_model_code": None, "result": "no code", PLUS: False}
        return Verdict(0.0, fields={**about, BASE: None if tests.base is None else False})
    ran = await outcome(tests, code)
    passes = ran.status == "passed"
    return Verdict(
        float(passes),
        fields={
            "extracted_model_code": code,
            "result": ran.status,
            "tests_passed": ran.passed,
            BASE: None if tests.base is None else ran.passed >= tests.base,
            PLUS: passes,
        },
    )


async def outcome(tests: FunctionTests, code: str) -> Outcome:
    """What a program's function returns on the tests, compared outside of its sandbox.

    Raises:
        TaskError: the reference solution fails.
    """
    from gym_resources.code.function_calls import Call, returned_values, run_calls

    if (outputs := tests.outputs) is None:
        reference = Call(tests.reference, tests.function, tests.inputs)
        outputs = await returned_values(reference, call_limit_s=CALL_LIMIT_S)
        if outputs is None:
            raise TaskError(f"the reference solution of {tests.task_id} fails on the row's inputs")
    expected = outputs

    def is_right(number: int, value: Any) -> bool:
        arguments = () if tests.rule == "equal" else untagged(tests.inputs[number])
        return right(tests.rule, arguments, value, untagged(expected[number]), tests.tolerance)

    sizes = [len(msgspec.json.encode(one)) for one in outputs]
    call = Call(code, tests.function, tests.inputs)
    return await run_calls(call, is_right, sizes, call_limit_s=CALL_LIMIT_S)


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Pass@1 of all tests; of the base tests, and for how many of the problems they are known, if any are."""
    tasks = by_task(rollouts)
    known = by_task([rollout for rollout in rollouts if rollout.fields[BASE] is not None])
    found = {"plus": mean(tasks)}
    if known:
        found["base"] = mean(known, BASE)
    if 0 < len(known) < len(tasks):
        found["problems with a base score"] = 100 * len(known) / len(tasks)
    return found


HUMANEVAL = DatasetSource(
    repo_id="openai/openai_humaneval",
    file="openai_humaneval/test-00000-of-00001.parquet",
    split="benchmark",
    license="MIT",
)
environment = Environment(
    resource=verify,
    description="Python functions with many more tests than HumanEval and MBPP had (EvalPlus).",
    domain="coding",
    benchmark=Benchmark(prompt=PROMPT, score=score, fields=(BASE,)),
    data_license="Apache-2.0 (EvalPlus), MIT (HumanEval), CC-BY-4.0 (MBPP)",
    extra="sandbox",
    agent_refs=("human_eval_evalplus", "mbpp_evalplus"),
    datasets=(
        DatasetSource(
            repo_id="evalplus/humanevalplus",
            file="data/test-00000-of-00001-5973903632b82d40.parquet",
            further_sources=(HUMANEVAL,),
            split="benchmark",
            license="Apache-2.0",
            rows=humaneval_rows,
        ),
        DatasetSource(
            repo_id="evalplus/mbppplus",
            file="data/test-00000-of-00001-d5781c9c51e02795.parquet",
            split="benchmark",
            license="Apache-2.0",
            name="mbpp",
            rows=partial(rows, made_by=from_mbpp),
        ),
    ),
)
