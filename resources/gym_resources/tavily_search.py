"""Questions that take many searches, answered with Tavily's search and page tools.

``web_search`` lists up to ten results, ``find_in_page`` shows the lines of a page that fit a query,
``scroll_page`` the words of a page from a place on. A model in the role ``judge`` compares the final answer
with the right one (BrowseComp's question); with ``use_judge`` false a rule does: the text after the last
``Final Answer:``, ``Exact Answer:`` or ``Answer:`` must be the right one, but for case and marks around it. A
reply without a text is worth 0 and not judged; a judge's answer without ``correct: yes`` or ``correct: no``
counts as no, and is counted in ``judge_unparseable``.

``search_backend`` is ``tavily``, or ``replay``, which plays a recording without a network. Tavily's keys
(``TAVILY_API_KEY``, several take turns) come from the environment of the resource workers, excluded domains
from ``exclude_domains`` and the operator's list: docs/how-to/search.md.

Rows and rewards as NeMo Gym's environment of this name. Different on purpose: retries end; a service that is
down or gives no more is a failure of the rollout; the list of excluded domains may be left out; the judge's
last word counts; the rule accepts the form that the rows ask for; times of calls are in the metrics, not in
the row, so that a verdict can be repeated.
Source: the example rows and pages are our own.
"""

from __future__ import annotations

from typing import Any, Literal

from gym_data.web import PageUnavailable, host_of, is_within
from gym_runtime import AgentChoice, Environment, Reply, ResourceError, Role, Session, Verdict, tool

from gym_resources.judging import final_answer
from gym_resources.judging.asking import JudgedTask, Judging
from gym_resources.judging.texts import all_messages
from gym_resources.web_search.engines import TAVILY
from gym_resources.web_search.outside import excluded, fetcher
from gym_resources.web_search.tavily import LONGEST_QUERY, SNIPPET, Tavily, listed, made, numbered

PAGES_KEPT = 20
EXCLUDED = "URL is in excluded domains"
RESETS = {"context_reset_tokens": 50_000, "context_reset_keep_rounds": 3}


class QuestionTask(JudgedTask, kw_only=True):
    """A question.

    Attributes:
        use_judge: a judge compares the answers, not the rule.
        use_cache: answers are kept on disk, and used again for a week.
        exclude_domains: neither searched nor read, with the domains below them.
    """

    question: str
    ground_truth: str
    search_backend: Literal["tavily", "replay"] = "tavily"
    use_judge: bool = True
    use_cache: bool = False
    exclude_domains: list[str] = []  # noqa: RUF012 - a msgspec field, copied for each

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ground_truth.strip():
            raise ValueError("'ground_truth' is empty")


class TavilySearch(Session[QuestionTask]):
    judged_by_transcript = True

    async def open(self) -> None:
        if self.task.use_judge and self.models.get("judge") is None:
            raise ResourceError(
                "no model is given for the role 'judge': --judge PROVIDER/NAME, or --set use_judge=false "
                "to compare by a rule",
                stage="judge",
            )
        replay = self.task.search_backend == "replay"
        if not replay:
            TAVILY.check()
        self.excluded = excluded(self.task.exclude_domains)
        outside = fetcher("tavily_search", [TAVILY], replay=replay, cached=self.task.use_cache)
        self.tavily = Tavily(outside, self.excluded, search_depth="advanced")
        self.pages: dict[str, list[str]] = {}

    @tool
    async def web_search(self, query: str) -> dict[str, str]:
        """Search the web for a query and return up to 10 results, each with its link and a summary."""
        if not query.strip():
            return {"results_string": "Query is none"}
        if len(query) > LONGEST_QUERY:
            return {"results_string": "Query is too long"}
        found = await self.tavily.search(query)
        return {"results_string": found if isinstance(found, str) else listed(found)}

    @tool
    async def find_in_page(self, url: str, query: str) -> dict[str, str]:
        """Find the parts of a page that fit a query; returns them line by line."""
        if self._is_excluded(url):
            return {"results_string": EXCLUDED}
        try:
            text = await self.tavily.page(url, query.strip()[:LONGEST_QUERY])
        except PageUnavailable as error:
            return {"results_string": f"{url[:SNIPPET]} cannot be read: {error}"}
        header = f"Results for '{query[:LONGEST_QUERY]}' in {url[:SNIPPET]}:\n"
        return {"results_string": header + numbered(text, SNIPPET)}

    @tool
    async def scroll_page(self, url: str, start_index: int = 0, n: int = 2000) -> dict[str, str | int]:
        """Read ``n`` words of a page from the word ``start_index`` on."""
        if self._is_excluded(url):
            return {"results_string": EXCLUDED, "total_words": 0}
        if url not in self.pages:
            try:
                words = (await self.tavily.page(url)).split()
            except PageUnavailable as error:
                return {"results_string": f"{url[:SNIPPET]} cannot be read: {error}", "total_words": 0}
            self.pages[url] = words
            if len(self.pages) > PAGES_KEPT:
                self.pages.pop(next(iter(self.pages)))
        words = self.pages[url]
        start = max(0, start_index)
        return {"results_string": " ".join(words[start : start + max(0, n)]), "total_words": len(words)}

    async def verify(self, reply: Reply) -> Verdict:
        said = all_messages(reply)
        fields = {"num_tool_calls": len(reply.function_calls), "metrics": {"async_tavily_calls": made(reply)}}
        if not self.task.use_judge:
            answer = final_answer.stated(said)
            right = answer is not None and final_answer.alike(answer, self.task.ground_truth)
            return Verdict(float(right), fields={**fields, "extracted_final_answer": answer})
        judging = Judging(self.models.judge, self.task, final_answer.correct)
        verdict = None
        if said:
            asked = final_answer.prompt(self.task.question, said, self.task.ground_truth)
            verdict = await judging.label(asked)
        judged: dict[str, Any] = {**final_answer.judged_fields(judging.texts[0] if said else "")}
        judged["judge_response"] = judging.evaluations[0]["response"] if said else None
        return Verdict(float(verdict == "yes"), fields={**fields, **judged, **judging.fields()})

    def _is_excluded(self, url: str) -> bool:
        return is_within(host_of(url).lower(), self.excluded)


environment = Environment(
    resource=TavilySearch,
    description="Questions that take many searches, answered with Tavily's search and page tools.",
    domain="knowledge",
    parallel_tools=True,
    replayable=False,
    opens_first=True,
    roles=(Role(name="judge", optional=True),),
    agent_refs=("browsecomp_agent",),
    agents={"browsecomp_agent": AgentChoice("tool_loop", RESETS)},
    data_license="Apache-2.0",
)
