"""49 problems of competitions of 2025 that the best models solve about every second time (Apex shortlist).

Prompt, repeats, verifier and score are those of `hmmt`. Source: MathArena's data set, CC-BY-NC-SA-4.0, which
is fetched and not shipped; the example rows are our own.
"""

from __future__ import annotations

from gym_runtime import DatasetSource
from msgspec.structs import replace

from gym_resources.benchmarks import hmmt

environment = replace(
    hmmt.environment,
    description="Problems of competitions of 2025 that are hard for the best models (MathArena Apex).",
    datasets=(
        DatasetSource(
            repo_id="MathArena/apex-shortlist",
            file=hmmt.FILE,
            split="benchmark",
            license=hmmt.LICENSE,
            rows=hmmt.rows,
        ),
    ),
)
