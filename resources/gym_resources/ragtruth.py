"""Does a text claim what its source does not say? The spans that do, as a JSON list (RAGTruth).

The reply ends with ``{"hallucination list": [...]}``. The reward is 1 if the list is empty exactly where the
row's ``is_halu`` is false; a reply without such a list is worth 0. Which spans are named does not matter. The
score is the share that is right, the F1, precision and recall of finding texts with such claims, and the
share of each kind of text.

With ``strict``, which NeMo Gym lacks, each span must stand in the prompt, in any case and with any spaces.

Rows and rewards are those of NeMo Gym's environment of this name; that the last object of the reply counts is
our reading. Source: Niu et al. 2023, arXiv:2401.00396 (MIT); the example rows are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gym_runtime import Benchmark, Environment, Reply, ScoredRollout, Task, Verdict

from gym_resources.benchmarks.scoring.shares import by_category, found_and_missed
from gym_resources.extract.jsons import object_at_the_end
from gym_resources.judging.texts import last_user_text

KEY = "hallucination list"


class ClaimsTask(Task):
    is_halu: bool
    task_type: str = ""
    strict: bool = False


def stand_in(spans: Sequence[Any], text: str) -> bool:
    """Whether all spans are parts of a text, in any case and with any spaces."""
    plain = [" ".join(str(one).casefold().split()) for one in (text, *spans)]
    return all(one and one in plain[0] for one in plain[1:])


async def verify(task: ClaimsTask, reply: Reply) -> Verdict:
    spans: Any = (object_at_the_end(reply.joined_text) or {}).get(KEY)
    said = bool(cast("list[Any]", spans)) if isinstance(spans, list) else None
    if task.strict and said and not stand_in(cast("list[Any]", spans), last_user_text(task)):
        said = None
    return Verdict(float(said is task.is_halu), fields={"predicted": said})


def score(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Accuracy, F1 and what it is made of, and the accuracy of each kind of text."""
    whole, *kinds = by_category(rollouts, "task_type").items()
    return {**dict([whole]), **found_and_missed(rollouts, "predicted", "is_halu"), **dict(kinds)}


environment = Environment(
    resource=verify,
    description="Find claims of a text that its source does not support (RAGTruth).",
    domain="knowledge",
    agent="single_turn",
    benchmark=Benchmark(score=score, fields=("task_type", "predicted", "is_halu")),
    data_license="MIT",
)
