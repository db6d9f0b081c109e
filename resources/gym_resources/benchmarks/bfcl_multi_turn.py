"""Conversations of several turns on simulated services with state: the Berkeley leaderboard (BFCL v4).

Four categories of 200: base; a function that is offered only when the user complains (miss_func); a request
that lacks something at first (miss_param); and services full of data (long_context). A turn ends with an
answer without calls; then the next user's message follows, or further functions do. More than 20 answers with
calls in one turn end the conversation, which is then worth 0. `gym_resources.simulated_apis.played_calls` has
the rule: after each turn, the state and what was answered must be those of the expected calls. The score is
the mean of the categories, and each category.

The services are the authors' classes, and rows are made of the data in the same package, because the two
belong together: ``pip install --no-deps bfcl-eval==2026.3.23 mpmath``. Different on purpose: calls are not
evaluated as text; arguments that are no JSON object, and calls of more than 50,000 characters, are answered
with an error, instead of ending the turn.
The categories of v4 that search the web, keep a memory or vary the prompt's format are not here.

Source: Patil et al., github.com/ShishirPatil/gorilla (Apache-2.0, code and data). The example rows, and the
service that they need, are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gym_runtime import Benchmark, DatasetSource, Environment, ScoredRollout

from gym_resources.benchmarks.scoring.shares import categories, mean
from gym_resources.simulated_apis.api_conversation import Conversation
from gym_resources.simulated_apis.published_conversations import FILES, rows


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """The mean of the categories that there are, then these."""
    shares = {name: mean(tasks) for name, tasks in categories(rollouts, "category").items()}
    return {
        "multi-turn": fmean(shares.values()),
        **{f"category {name}": share for name, share in shares.items()},
    }


environment = Environment(
    resource=Conversation,
    description="Conversations on simulated services, checked by state and answers (BFCL v4, multi-turn).",
    domain="agent",
    max_turns=200,
    opens_first=True,
    extra="sandbox",
    benchmark=Benchmark(score=score, fields=("category",)),
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="bfcl-eval",
            installed=True,
            file=FILES[0],
            further_files=FILES[1:],
            split="benchmark",
            license="Apache-2.0",
            rows=rows,
        ),
    ),
)
