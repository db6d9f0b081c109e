"""360 problems of olympiads in Lean 4 (MathOlympiadBench).

The verifier is that of `math_formal_lean`, which needs a Lean. The prompt is our own; NeMo Gym makes 32
rollouts of a theorem. The score is pass@32, the share of theorems that one rollout proves, and the mean.
Source: Lin et al. 2025, Goedel-Prover-V2 (Goedel-LM/MathOlympiadBench on the hub, MIT); the example rows are
our own.
"""

from __future__ import annotations

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_formal_lean
from gym_resources.published_sets import theorems

environment = replace(
    math_formal_lean.environment,
    description="Problems of olympiads, to be proved in Lean 4 (MathOlympiadBench).",
    repeats=32,
    benchmark=Benchmark(prompt=theorems.PROMPT, score=theorems.score),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="Goedel-LM/MathOlympiadBench",
            file="MOBench.jsonl",
            revision="390cec5f70461573a41f9be1576777264e2fc3d1",
            split="benchmark",
            license="MIT",
            rows=theorems.rows,
        ),
    ),
    agent_refs=(),
)
