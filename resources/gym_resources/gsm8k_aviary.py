"""Word problems of grade-school mathematics, solved with a calculator (GSM8K, by the library aviary).

``calculator`` evaluates an expression, ``submit_answer`` ends the episode: with 1 if the number is right up
to a ten-thousandth, with 0 if it is wrong, with -1 if it is not a number. An expression that cannot be
evaluated, or a call of another tool, ends it with -1. The reward is the sum over the steps. The tools come
from the library; rows do not list them.

A row is a task of the data set by its ``task_idx`` (in ``split``: ``train``, which leaves out every fifth
row for ``val``, ``train_full`` or ``test``), downloaded from the hub once per worker; a row that has its own
``question`` and ``answer`` needs no download. Numbers of more than 14,000 bits cannot be evaluated, since
they would block the worker. Rows and rewards are those of NeMo Gym's ``gsm8k_aviary_agent``. Source:
github.com/Future-House/aviary (Apache-2.0); the example rows are our own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

from gym_runtime import Environment, Task
from msgspec import Meta

from gym_resources.aviary_episodes.dataset_hub import hub
from gym_resources.aviary_episodes.library_episode import AviaryEpisode, chosen

if TYPE_CHECKING:
    from aviary.envs.gsm8k import GSM8kDataset

    from gym_resources.aviary_episodes.calculator import Calculator


class Gsm8kTask(Task):
    task_idx: Annotated[int, Meta(ge=0)]
    split: Literal["train", "train_full", "val", "test"] = "train"
    question: str | None = None
    answer: float | None = None

    def __post_init__(self) -> None:
        if (self.question is None) != (self.answer is None):
            raise ValueError("'question' and 'answer' go together")


@cache
def dataset(split: str) -> GSM8kDataset:
    from aviary.envs.gsm8k import GSM8kDataset

    with hub():
        return GSM8kDataset(split)


class Gsm8k(AviaryEpisode[Gsm8kTask]):
    def make(self) -> Calculator:
        from gym_resources.aviary_episodes.calculator import Calculator

        task = self.task
        if task.question is not None and task.answer is not None:
            return Calculator(f"row_{task.task_idx}", task.question, task.answer)
        published = chosen(dataset, task.split, task.task_idx)
        return Calculator(published.problem_id, published.problem, published.answer, published.config)


environment = Environment(
    resource=Gsm8k,
    description="Word problems of grade-school mathematics, solved with a calculator.",
    domain="math",
    max_turns=20,
    data_license="MIT (GSM8K)",
    extra="aviary",
)
