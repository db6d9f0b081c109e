"""One of reasoning-gym's own tasks: ``reasoning-gym:TASK``.

``?size=N&seed=N`` says how many rows there are (50 by default; ``--limit`` takes the first) and from which
seed (0); all other settings are the task's own, such as ``min_terms``. The rows are generated, the same ones
for the same settings. They are those of the environment ``reasoning_gym``, which verifies them, isolated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gym_runtime import Delegate, Environment, Reply, Session, UsageError, Verdict

from gym_resources import reasoning_gym as puzzles
from gym_resources.guests.played import named_code

SIZE = 50


class Puzzle(Session[puzzles.ReasoningTask]):
    """A puzzle, whose answer the environment ``reasoning_gym`` judges."""

    judged_by_transcript = True

    async def verify(self, reply: Reply) -> Verdict:
        return await Delegate("reasoning_gym", self.row, self.models).verify(reply)


def environment(address: str) -> Environment:
    """The environment of an address.

    Raises:
        UsageError: there is no such task, or a setting does not fit.
    """
    name, settings = named_code.parse(address)
    size, seed = settings.pop("size", SIZE), settings.pop("seed", None)
    if not (isinstance(size, int) and size > 0 and isinstance(seed, int | None)):
        raise UsageError(f"reasoning-gym:{address}: size is a number above 0, and seed a number")

    def generate(limit: int | None, chosen: int) -> Iterator[dict[str, Any]]:
        count = size if limit is None else min(limit, size)
        return puzzles.generate(count, chosen if seed is None else seed, name, **settings)

    try:
        next(puzzles.generate(1, 0, name, **settings))
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"reasoning-gym:{address}: {error}") from error
    return Environment(
        resource=Puzzle,
        description=f"reasoning-gym's task {name}",
        extra="reasoning-gym",
        generate=generate,
    )
