r"""Problems of physics whose answers are compared symbolically, then by a judge (PHYSICS).

The rule is that of `gym_resources.judging.graded_math`: the library first, then a judge, which lets a number
be one percent off. Without a model in the role ``judge`` the library alone decides. An ``expected_answer`` in
``\\boxed{}`` is the content of its boxes. The score is the share that is right, and the same by domain.

Rows are those of NeMo Gym's environment of this name; that the judge is asked once, and about the answer that
the library found, is our reading. Source: Feng et al. 2025, arXiv:2503.21821 (the data set desimfj/PHYSICS);
the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Model, Reply, Role, Verdict
from msgspec.structs import replace

from gym_resources import math_with_judge
from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.judging.graded_math import ROUNDED, GradedTask, graded, verify


async def review(task: GradedTask, reply: Reply, verdict: Verdict, judge: Model | None) -> Verdict:
    return await graded(task, reply, verdict, judge, "physics", ROUNDED)


environment = replace(
    math_with_judge.environment,
    resource=verify,
    review=review,
    description="Problems of physics, answers compared symbolically, then by a judge (PHYSICS).",
    domain="math",
    roles=(Role(name="judge", optional=True),),
    benchmark=Benchmark(score=partial(by_category, field="domain"), fields=("domain",)),
    data_license="see the card of desimfj/PHYSICS",
    datasets=(),
    agent_refs=("physics",),
)
