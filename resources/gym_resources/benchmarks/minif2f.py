"""244 theorems of school and olympiad mathematics in Lean 4 (miniF2F, its test split).

The verifier is that of `math_formal_lean`, which needs a Lean. The prompt is our own; NeMo Gym makes 32
rollouts of a theorem. The score is pass@32, the share of theorems that one rollout proves, and the mean.
Source: Zheng et al. 2021, arXiv:2109.00110, as in Goedel-Prover-V2 (github.com/Goedel-LM/Goedel-Prover-V2,
MIT); the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Asset, Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_formal_lean
from gym_resources.published_sets import theorems

THEOREMS = Asset(
    name="minif2f",
    description="the theorems of miniF2F",
    licence="MIT",
    urls={
        "minif2f.jsonl": "https://raw.githubusercontent.com/Goedel-LM/Goedel-Prover-V2/main/dataset/minif2f.jsonl"
    },
    size_bytes=10_000_000,
    setting="GYM_MINIF2F",
    page="https://github.com/Goedel-LM/Goedel-Prover-V2",
)
environment = replace(
    math_formal_lean.environment,
    description="Theorems of school and olympiad mathematics, to be proved in Lean 4 (miniF2F).",
    repeats=32,
    benchmark=Benchmark(prompt=theorems.PROMPT, score=theorems.score),
    data_license="MIT",
    datasets=(
        DatasetSource(
            asset=THEOREMS,
            file="minif2f.jsonl",
            split="benchmark",
            license="MIT",
            rows=partial(theorems.rows, split="test"),
        ),
    ),
    agent_refs=(),
)
