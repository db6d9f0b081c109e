r"""Multiple-choice questions, answered with a search engine: search, read pages, put the letter into a box.

``search`` gives up to ten results in the shape of Google's API, ``browse`` the main text of a page (at most
10,000 words: the first and the last 5,000). The reward is 1 if the last item of the answer is a message, and
its first ``\boxed{…}`` holds the expected letter. With ``strict``, which NeMo Gym lacks, all its boxes must:
otherwise a second box with another letter does not matter.

``search_backend`` (``--set search_backend=…``) names the engine: ``google``, ``tavily``, ``brave``,
``searxng``, or ``replay``, which plays a recording without a network. Keys come from the environment of the
resource workers: docs/how-to/search.md. An engine that is down or gives no more is a failure of the rollout;
a page that cannot be read is a text for the model.

Rows and rewards as NeMo Gym's environment of this name. Different on purpose: an answer without a box is
worth 0, where it is an error there; ``\boxed{{C}}`` (which its prompt asks for, by a slip) and
``\boxed{\text{C}}`` are C; private addresses are not read; long pages are cut at words at both ends; and an
engine's failure is no text for the model.
Source: the data are nvidia/Nemotron-RL-knowledge-web_search-mcqa; the example rows and pages are our own.
"""

from __future__ import annotations

import msgspec
from gym_runtime import DatasetSource, Environment, Reply, Session, Task, Verdict, tool

from gym_resources.extract.boxed import all_boxed, first_boxed
from gym_resources.web_search.engines import SearchBackend, opened
from gym_resources.web_search.web_pages import browse


class SearchTask(Task, kw_only=True):
    """A question with options.

    Attributes:
        use_cache: answers are kept on disk, and used again for a week.
        exclude_domains: neither found nor read, with the domains below them.
    """

    expected_answer: str
    search_backend: SearchBackend = "google"
    use_cache: bool = False
    exclude_domains: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each
    strict: bool = False


class GoogleSearch(Session[SearchTask]):
    judged_by_transcript = True

    async def open(self) -> None:
        self.fetcher, self.engine = opened(
            "google_search",
            self.task.search_backend,
            self.task.exclude_domains,
            cached=self.task.use_cache,
        )

    @tool
    async def search(self, query: str) -> dict[str, str]:
        """Search Google for a query and return up to 10 search results."""
        if not query.strip():
            return {"search_results": "Error: the query is empty"}
        found = await self.engine.find(query)
        shown = f"Error: {found}" if isinstance(found, str) else msgspec.json.encode(found).decode()
        return {"search_results": shown}

    @tool
    async def browse(self, url: str) -> dict[str, str]:
        """Returns the cleaned content of a webpage; a page of more than 10,000 words is shortened."""
        return {"page_content": await browse(self.fetcher, url)}

    async def verify(self, reply: Reply) -> Verdict:
        option = first_boxed(reply.last_item_text)
        expected = self.task.expected_answer.strip()
        right = option == expected
        if self.task.strict:
            right = right and set(all_boxed(reply.last_item_text)) == {expected}
        return Verdict(float(right), fields={"parsed_option": option})


environment = Environment(
    resource=GoogleSearch,
    description="Multiple-choice questions, answered by searching the web and reading pages.",
    domain="knowledge",
    parallel_tools=True,
    replayable=False,
    opens_first=True,
    extra="search",
    data_license="Apache-2.0",
    datasets=(
        DatasetSource(
            repo_id="nvidia/Nemotron-RL-knowledge-web_search-mcqa",
            file="mcqa_search.jsonl",
            license="Apache-2.0",
        ),
    ),
)
