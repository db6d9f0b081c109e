"""Questions of common sense with five options (CommonsenseQA): the 1,221 of its validation set.

The verifier is `mcqa`'s, which reads the letter after the last ``Answer:``; the prompt is our own, zero-shot,
for models that answer in words: figures from log-probabilities of the options are others. The score is the
share that is right.
Source: Talmor et al. 2019, arXiv:1811.00937 (MIT); the example rows are our own. The test set has no
published answers.
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
    description="Questions of common sense with five options (CommonsenseQA).",
    benchmark=Benchmark(prompt=PROMPT, score=accuracy),
    data_license="MIT",
    datasets=(
        DatasetSource(
            repo_id="tau/commonsense_qa",
            file="data/validation-00000-of-00001.parquet",
            split="benchmark",
            license="MIT",
            rows=labelled_rows,
        ),
    ),
    agent_refs=(),
)
