r"""Problems of olympiads whose answers are compared symbolically, then by a judge (IMO-AnswerBench).

The rule is that of `gym_resources.judging.graded_math`: the library first, then a judge, which ends with
``\\boxed{Correct}`` or ``\\boxed{Incorrect}``. Without a model in the role ``judge`` the library alone
decides. The score is the share that is right, and the same by category. NeMo Gym makes 4 rollouts of a row of
its benchmark imo_answerbench: `imo_answerbench` here.

Rows, labels and rewards are those of NeMo Gym's environment of this name. Source: Luong et al. 2025,
arXiv:2511.01846 (CC-BY-4.0); the judge's prompt and the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Model, Reply, Role, Verdict
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.judging.graded_math import EXACT, GradedTask, graded, verify


async def review(task: GradedTask, reply: Reply, verdict: Verdict, judge: Model | None) -> Verdict:
    return await graded(task, reply, verdict, judge, "mathematics", EXACT)


environment = replace(
    math_with_judge.environment,
    resource=verify,
    review=review,
    description="Problems of olympiads, answers compared symbolically, then by a judge.",
    domain="math",
    roles=(Role(name="judge", optional=True),),
    benchmark=Benchmark(score=partial(by_category, field="category"), fields=("category",)),
    data_license="CC-BY-4.0",
    datasets=(),
    agent_refs=(),
)
