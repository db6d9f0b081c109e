"""Questions of science at school that simple methods miss (ARC-Challenge): 1,172.

The verifier is `mcqa`'s, which reads the letter after the last ``Answer:``; the prompt is our own, zero-shot,
for models that answer in words: figures from log-probabilities of the options are others. The score is the
share that is right.
Source: Clark et al. 2018, arXiv:1803.05457 (CC-BY-SA-4.0); the example rows are our own.
"""

from __future__ import annotations

from gym_runtime import Benchmark, DatasetSource
from msgspec.structs import replace

from gym_resources import mcqa
from gym_resources.benchmarks.scoring.shares import accuracy
from gym_resources.published_sets import choices
from gym_resources.published_sets.choices import PROMPT
from gym_resources.published_sets.labelled import labelled_rows

environment = replace(
    mcqa.environment,
    resource=choices.verify,
    description="Questions of science at school that simple methods miss (ARC-Challenge).",
    benchmark=Benchmark(prompt=PROMPT, score=accuracy),
    data_license="CC-BY-SA-4.0",
    datasets=(
        DatasetSource(
            repo_id="allenai/ai2_arc",
            file="ARC-Challenge/test-00000-of-00001.parquet",
            split="benchmark",
            license="CC-BY-SA-4.0",
            rows=labelled_rows,
        ),
    ),
    agent_refs=(),
)
