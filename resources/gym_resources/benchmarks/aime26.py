"""American Invitational Mathematics Examination of 2026: 30 problems with answers from 0 to 999.

Prompt, repeats, verifier and score are those of `aime24`. Source: MathArena's data set, CC-BY-NC-SA-4.0,
which is fetched and not shipped; the example rows are our own.
"""

from __future__ import annotations

from gym_runtime import DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import aime24

environment = replace(
    aime24.environment,
    description="American Invitational Mathematics Examination 2026, 30 problems.",
    data_license="CC-BY-NC-SA-4.0",
    datasets=(
        DatasetSource(
            repo_id="MathArena/aime_2026",
            file="data/train-00000-of-00001.parquet",
            split="benchmark",
            license="CC-BY-NC-SA-4.0",
            rows=aime24.rows,
        ),
    ),
)
