"""500 issues of twelve Python repositories, each checked by engineers (SWE-bench Verified).

The environment is `mini_swe_agent`'s: the model works with a shell in the instance's image, and its patch is
judged in a new container of that image, where the test patch, the installation and the tests of the
repository and its version run (`gym_resources.swe.specs`). An issue is resolved, and worth 1, if all of
``FAIL_TO_PASS`` and ``PASS_TO_PASS`` pass. The score is the share of resolved issues, and the same of each
repository and of each ``difficulty``, which is the time that engineers estimated.

The benchmark publishes no prompt: that of `gym_resources.swe.shell` asks, with mini-swe-agent's limit of 250
steps. The hints are left out, as the leaderboard demands. What a model must not see is removed before its
first command: later commits, tags and remotes. There is no network, neither for the model nor for the tests:
an issue whose tests need one, as some of ``psf/requests``, is not resolved by its own patch either, which
``run_golden`` shows. Different on purpose: changes of tests and of what configures their runner do not count.

Source: Jimenez et al. 2024, arXiv:2310.06770, and openai.com/index/introducing-swe-bench-verified; the data,
github.com/SWE-bench/SWE-bench and its images are MIT, the repositories have licences of their own. The
example rows are our own, and need no image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gym_runtime import Benchmark, DatasetSource, ScoredRollout
from msgspec.structs import replace

from gym_resources import mini_swe_agent
from gym_resources.benchmarks.scoring.shares import by_category, categories, mean
from gym_resources.swe import shell

FIELDS = (
    *("instance_id", "repo", "version", "base_commit", "problem_statement", "patch", "test_patch"),
    *("FAIL_TO_PASS", "PASS_TO_PASS"),
)


def rows(instances: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in instances:
        yield {
            "responses_create_params": {"input": shell.messages(one["problem_statement"])},
            **{name: one[name] for name in FIELDS},
            "difficulty": one.get("difficulty"),
            "subset": "verified",
            "split": "test",
        }


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The share of resolved issues, of all, of each repository, and of each difficulty."""
    difficulties = categories(rollouts, "difficulty")
    return {
        **by_category(rollouts, "repo"),
        **{f"difficulty {name}": mean(tasks) for name, tasks in difficulties.items()},
    }


environment = replace(
    mini_swe_agent.environment,
    description="Python repositories' issues, solved with a shell and judged by tests (SWE-bench Verified).",
    benchmark=Benchmark(score=score, fields=("repo", "difficulty")),
    datasets=(
        DatasetSource(
            repo_id="princeton-nlp/SWE-bench_Verified",
            file="data/test-00000-of-00001.parquet",
            split="benchmark",
            license="MIT",
            rows=rows,
        ),
    ),
    agent_refs=(),
    generate=None,
)
