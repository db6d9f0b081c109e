"""Questions that need a fact of elementary science and common knowledge (OpenBookQA): 500.

The verifier is `mcqa`'s, which reads the letter after the last ``Answer:``; the prompt is our own, zero-shot,
for models that answer in words: figures from log-probabilities of the options are others. The score is the
share that is right.
Source: Mihaylov et al. 2018, arXiv:1809.02789 (Apache-2.0, as its repository says); the example rows are our
own.
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
    description="Questions of elementary science and common knowledge (OpenBookQA).",
    benchmark=Benchmark(prompt=PROMPT, score=accuracy),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="allenai/openbookqa",
            file="main/test-00000-of-00001.parquet",
            split="benchmark",
            license="Apache-2.0",
            rows=labelled_rows,
        ),
    ),
    agent_refs=(),
)
