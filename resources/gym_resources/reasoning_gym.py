r"""The procedurally generated tasks of reasoning-gym, scored by each task's own scorer.

The answer is what stands in the last ``<answer>`` tag, else in the last ``\boxed{}``, else the whole text
of the model's last message. ``metadata.source_dataset`` names the scorer; many give part of the reward
for a part of the answer. Scorers are a hundred pieces of other people's code, some of which parse
expressions and solve puzzles, so they run in a process that can be killed. Rows and rewards as its
namesake in NeMo Gym; unlike there, a row whose dataset does not exist is refused.
Source: github.com/open-thought/reasoning-gym (Apache-2.0); the rows were generated with it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, cast

from gym_runtime import Environment, Reply, Task, Verdict
from gym_runtime.errors import TaskError

from gym_resources.extract.boxed import last_boxed
from gym_resources.extract.tagged import last_tagged


class ReasoningTask(Task):
    question: str
    answer: str | None
    metadata: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.metadata.get("source_dataset"), str):
            raise ValueError("'metadata.source_dataset' must name a dataset of reasoning-gym")


class Scorer(Protocol):
    def __call__(self, answer: str, entry: dict[str, Any]) -> float: ...


@cache
def scorer(dataset: str) -> Scorer:
    """A dataset's scorer.

    Raises:
        TaskError: there is no such dataset.
    """
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    try:
        return cast("Scorer", reasoning_gym.get_score_answer_fn(dataset))
    except ValueError as error:
        raise TaskError(f"metadata.source_dataset: {error}") from error


def extract(text: str) -> str:
    for found in (last_tagged(text, "answer"), last_boxed(text)):
        if found is not None:
            return found
    return text


async def verify(task: ReasoningTask, reply: Reply) -> Verdict:
    answer = extract(reply.text)
    entry = {"question": task.question, "answer": task.answer, "metadata": task.metadata}
    score = scorer(task.metadata["source_dataset"])(answer=answer, entry=entry)
    return Verdict(float(score), fields={"extracted_answer": answer})


environment = Environment(
    resource=verify,
    description="Procedurally generated reasoning puzzles of many kinds, each with its own scorer.",
    domain="other",
    heavy=True,
    extra="reasoning-gym",
)
