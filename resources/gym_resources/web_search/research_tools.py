"""Several searches and several pages at once: tools for long research, with any engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, ClassVar, TypeVar

import anyio
from gym_runtime import Session, tool
from gym_runtime.errors import leaf
from msgspec import Meta

from gym_resources.judging.asking import JudgedTask
from gym_resources.web_search.engines import Found, SearchBackend, opened
from gym_resources.web_search.web_pages import browse

T = TypeVar("T")


class ResearchTask(JudgedTask, kw_only=True):
    """A question with one right answer.

    Attributes:
        use_cache: answers are kept on disk, and used again for a week.
        exclude_domains: neither found nor read, with the domains below them.
    """

    question: str
    ground_truth: str
    search_backend: SearchBackend = "google"
    use_cache: bool = False
    exclude_domains: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each


class Researcher(Session[ResearchTask]):
    """The tools. A subclass judges.

    Attributes:
        environment: whose recording is shipped.
    """

    judged_by_transcript = True
    environment: ClassVar[str]

    async def open(self) -> None:
        self.fetcher, self.engine = opened(
            self.environment,
            self.task.search_backend,
            self.task.exclude_domains,
            cached=self.task.use_cache,
        )

    @tool
    async def search(
        self, queries: Annotated[list[str], Meta(min_length=1, max_length=5)]
    ) -> dict[str, list[Found] | str]:
        """Search the web; up to 5 queries are searched at once, each gives up to 10 results."""
        return await _at_once(queries, self._search)

    @tool
    async def browse(self, urls: Annotated[list[str], Meta(min_length=1, max_length=3)]) -> dict[str, str]:
        """Read up to 3 pages: the main text of each; one of more than 10,000 words is shortened."""
        return await _at_once(urls, partial(browse, self.fetcher))

    async def _search(self, query: str) -> list[Found] | str:
        if not query.strip():
            return "Error: the query is empty"
        found = await self.engine.find(query)
        return f"Error: {found}" if isinstance(found, str) else found.items


async def _at_once(asked: Sequence[str], answer: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """The answers to all, by what was asked, in that order.

    Raises:
        ServiceUnavailable: a service is down, or gives no more.
    """
    answers: dict[str, T] = {}

    async def ask(one: str) -> None:
        answers[one] = await answer(one)

    try:
        async with anyio.create_task_group() as tasks:
            for one in dict.fromkeys(asked):
                tasks.start_soon(ask, one)
    except BaseExceptionGroup as group:
        raise leaf(group) from group
    return {one: answers[one] for one in asked}
