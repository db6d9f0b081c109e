"""Questions that need two pages of an encyclopedia (HotpotQA, by the library aviary).

``search`` opens a page and shows its beginning, or names pages with similar titles; ``lookup`` shows the
page's next line that holds a word; ``submit_answer`` ends the episode: with 1 if the expected answer is in
the given one, whatever its case, articles and punctuation. An empty search or lookup ends it with 0.
The tools come from the library; rows do not list them.

A row is a task of the data set by its ``task_idx`` (in ``split``: ``train``, ``validation``; ``test`` has no
answers), downloaded from the hub once per worker, and searches go to Wikipedia; a Wikipedia that cannot be
reached is a failure of the environment. A row that has its own ``question``, ``answer`` and ``pages`` (texts
by title) needs neither. Rows and rewards are those of NeMo Gym's ``hotpotqa_aviary_agent``.
Source: github.com/Future-House/aviary (Apache-2.0), after Yao et al., "ReAct" (2023); the example rows and
their pages are our own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from gym_runtime import Environment, Reply, ServiceUnavailable, Step, Task
from msgspec import Meta

from gym_resources.aviary_episodes.dataset_hub import hub
from gym_resources.aviary_episodes.library_episode import AviaryEpisode, chosen
from gym_resources.aviary_episodes.pages import RecentPages, RowPages

if TYPE_CHECKING:
    from aviary.envs.hotpotqa import HotPotQADataset, HotPotQAEnv

_wikipedia = RecentPages()


class HotpotTask(Task):
    task_idx: Annotated[int, Meta(ge=0)]
    split: Literal["train", "validation", "test"] = "train"
    question: str | None = None
    answer: str | None = None
    pages: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if not (self.question is None) == (self.answer is None) == (self.pages is None):
            raise ValueError("'question', 'answer' and 'pages' go together")


@cache
def dataset(split: str) -> HotPotQADataset:
    from aviary.envs.hotpotqa import HotPotQADataset

    with hub():
        return HotPotQADataset(split)


class Hotpot(AviaryEpisode[HotpotTask]):
    async def step(self, reply: Reply) -> Step:
        from tenacity import RetryError

        try:
            return await super().step(reply)
        except RetryError as error:
            problem = error.last_attempt.exception()
            raise ServiceUnavailable(
                f"Wikipedia cannot be reached: {type(problem).__name__} {problem}",
                stage="resource",
                retryable=True,
            ) from error

    def make(self) -> HotPotQAEnv:
        from aviary.envs.hotpotqa import HotPotQAEnv

        task = self.task
        if task.question is not None and task.answer is not None and task.pages is not None:
            made = HotPotQAEnv(None, task.question, task.answer)
            cast("Any", made).wiki_cache = RowPages(task.pages)
            return made
        made = chosen(dataset, task.split, task.task_idx)
        cast("Any", made).wiki_cache = _wikipedia
        return made


environment = Environment(
    resource=Hotpot,
    description="Questions that need two pages of an encyclopedia, found with a search tool.",
    domain="agent",
    max_turns=20,
    data_license="CC-BY-SA-4.0 (HotpotQA)",
    extra="aviary",
)
