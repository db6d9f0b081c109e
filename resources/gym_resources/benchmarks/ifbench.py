"""300 prompts with 58 instructions on the answer's form that models were not trained on (IFBench).

Verifier and figures are those of `ifeval`; the authors report the share of prompts of which all instructions
are followed loosely, so it comes first. The prompts are used as they are. Repeats: NeMo Gym makes 5 rollouts
of a prompt. A row's ``grading_mode`` ``fraction`` makes the reward the share of its instructions, for
training. ``ratio:overlap`` compares trigrams of characters, as the authors' program does.
Source: Pyatkin et al. 2025, arXiv:2507.02833; the prompts are ODC-BY, the rules Apache-2.0. The
example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from gym_runtime import DatasetSource, ScoredRollout
from msgspec.structs import replace

from gym_resources.benchmarks import ifeval

REPORTED = "prompt loose"


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """As of `ifeval`, with the loose share of prompts first."""
    figures = ifeval.score(rollouts)
    return {REPORTED: figures[REPORTED], **figures}


published = ifeval.environment.benchmark
assert published is not None
environment = replace(
    ifeval.environment,
    description="Prompts with instructions on the answer's form that are new to models (IFBench).",
    repeats=5,
    benchmark=replace(published, score=score),
    data_license="ODC-BY",
    datasets=(
        DatasetSource(
            repo_id="allenai/IFBench_test",
            file="data/train-00000-of-00001.parquet",
            split="benchmark",
            license="ODC-BY",
            rows=ifeval.rows,
        ),
    ),
)
