"""Problems of the Putnam competition in Lean 4 (PutnamBench).

Where a problem asks for an answer, its Lean file has the answer in a comment; it is put into the statement,
so that only a proof is asked for. The verifier is that of `math_formal_lean`, which needs a Lean. The prompt
is our own; NeMo Gym makes 32 rollouts of a theorem. The score is pass@32, the share of theorems that one
rollout proves, and the mean. Source: Tsoukalas et al. 2024, arXiv:2407.11214
(github.com/trishullab/PutnamBench, Apache-2.0), at one commit, whose Mathlib is older than others'; the
example rows are our own.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Asset, Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import math_formal_lean
from gym_resources.published_sets import theorems

COMMIT = "3c08a55647d09b96d47fc7c77835c09576f4c1e9"
ARCHIVE = f"PutnamBench-{COMMIT}.zip"
THEOREMS = Asset(
    name="putnam-bench",
    description="the problems of PutnamBench",
    licence="Apache-2.0",
    urls={ARCHIVE: f"https://codeload.github.com/trishullab/PutnamBench/zip/{COMMIT}"},
    size_bytes=200_000_000,
    setting="GYM_PUTNAM_BENCH",
    page="https://github.com/trishullab/PutnamBench",
)
environment = replace(
    math_formal_lean.environment,
    description="Problems of the Putnam competition, to be proved in Lean 4 (PutnamBench).",
    repeats=32,
    benchmark=Benchmark(prompt=theorems.PROMPT, score=theorems.score),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            asset=THEOREMS,
            file=ARCHIVE,
            split="benchmark",
            license="Apache-2.0",
            rows=partial(theorems.file_rows, folder="lean4/src"),
        ),
    ),
    agent_refs=(),
)
