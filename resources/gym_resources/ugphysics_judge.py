"""Undergraduate problems of physics, answers compared symbolically, then by a judge (UGPhysics).

The rule is that of `gym_resources.judging.graded_math`, as for `physics_judge`. The score is the share that
is right, and the same by subject.

Rows are those of NeMo Gym's environment of this name; that the judge is asked once, and about the answer that
the library found, is our reading. Source: Xu et al. 2025, arXiv:2502.00334 (CC-BY-NC-SA-4.0; the data set
UGPhysics/ugphysics); the example rows are our own.
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
    description="Undergraduate problems of physics, answers compared symbolically, then by a judge.",
    domain="math",
    roles=(Role(name="judge", optional=True),),
    benchmark=Benchmark(score=partial(by_category, field="subject"), fields=("subject",)),
    data_license="CC-BY-NC-SA-4.0",
    datasets=(),
    agent_refs=("ugphysics",),
)
