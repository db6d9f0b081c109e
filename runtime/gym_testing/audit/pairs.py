"""What a comparison of groups must keep: equal replies get equal rewards, and their order changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gym_runtime import Pending
from gym_runtime.environment import Example, LoadedEnvironment, as_features, judge_recorded
from gym_runtime.errors import GymError
from gym_runtime.messages import Candidate
from msgspec import Raw

TOLERANCE = 1e-9


async def unfair(
    environment: LoadedEnvironment, example: Example, replies: Sequence[bytes]
) -> dict[str, str]:
    """What is wrong with the comparison of two replies: the name of a rule, and what was seen.

    It is empty where nothing is compared, where a model in a role decides, and where the comparison fails.
    """
    answers = example.answers()
    models = answers.models(environment.resource.roles)
    try:
        judged = [await judge_recorded(environment, example.row, reply, models) for reply in replies]
        first, second = (as_features(one.features) for one in judged if isinstance(one, Pending))

        async def rewards(*features: Raw) -> list[float | None]:
            candidates = [Candidate(rollout_index=index, features=one) for index, one in enumerate(features)]
            verdicts = await environment.resource.compare(example.row, candidates, models)
            return [verdict.reward for verdict in verdicts]

        equal = await rewards(first, first)
        ordered, swapped = await rewards(first, second), await rewards(second, first)
    except (GymError, ValueError):  # fewer than two wait for a comparison
        return {}
    if answers.asked:
        return {}
    found: dict[str, str] = {}
    if not _alike(equal, equal[::-1]):
        found["pairs:equal_replies"] = f"equal replies get {equal}"
    if not _alike(ordered, swapped[::-1]):
        found["pairs:swapped_replies"] = f"{ordered}, but {swapped[::-1]} with the replies swapped"
    return found


def _alike(some: Sequence[float | None], others: Sequence[float | None]) -> bool:
    return all(
        one is not None and other is not None and abs(one - other) <= TOLERANCE
        for one, other in zip(some, others, strict=True)
    )
