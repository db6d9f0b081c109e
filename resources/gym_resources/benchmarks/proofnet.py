"""Theorems of undergraduate mathematics in Lean 4 (ProofNet, its test split).

The verifier is that of `math_formal_lean`, which needs a Lean. The prompt is our own; NeMo Gym makes 32
rollouts of a theorem. The score is pass@32, the share of theorems that one rollout proves, and the mean.
Source: Azerbayev et al. 2023, arXiv:2302.12433, as in DeepSeek-Prover-V1.5
(github.com/deepseek-ai/DeepSeek-Prover-V1.5, MIT); the example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Asset, Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_formal_lean
from gym_resources.published_sets import theorems

COMMIT = "2c4ba9119eef74d0d611f494261b2c5bae98c69a"
THEOREMS = Asset(
    name="proofnet",
    description="the theorems of ProofNet",
    licence="MIT",
    urls={
        "proofnet.jsonl": f"https://raw.githubusercontent.com/deepseek-ai/DeepSeek-Prover-V1.5/{COMMIT}/datasets/proofnet.jsonl"
    },
    size_bytes=10_000_000,
    setting="GYM_PROOFNET",
    page="https://github.com/deepseek-ai/DeepSeek-Prover-V1.5",
)
environment = replace(
    math_formal_lean.environment,
    description="Theorems of undergraduate mathematics, to be proved in Lean 4 (ProofNet).",
    repeats=32,
    benchmark=Benchmark(prompt=theorems.PROMPT, score=theorems.score),
    data_license="MIT",
    datasets=(
        DatasetSource(
            asset=THEOREMS,
            file="proofnet.jsonl",
            split="benchmark",
            license="MIT",
            rows=partial(theorems.rows, split="test"),
        ),
    ),
    agent_refs=(),
)
