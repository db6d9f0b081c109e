"""Questions on companies, answered from their filings with the SEC, with tools and a store of documents.

``sec_filing_search`` lists filings, ``parse_html_page`` puts the text of a page aside under a key,
``retrieve_information`` has a model in the role ``retrieval`` answer a prompt with such texts in it,
``web_search`` asks Tavily where a key is set, ``submit_final_result`` gives the answer. What was submitted
last is graded 0, 1 or 2 by a model in the role ``judge``, which is asked up to three times until it gives a
grade. Only 2 is worth 1; with ``reward_mode`` ``scaled``, 1 is worth 0.5. Nothing submitted is worth 0, and
not judged. With ``use_judge`` false the submission must contain the expected answer, in any case.

``search_backend`` is ``live``, or ``replay``, which plays a recording without a network. The SEC demands a
contact: ``SEC_CONTACT``. Contact, Tavily's key, a local dump: docs/how-to/search.md. ``max_end_date`` hides
what is newer: neither found by search, nor by the web search.

Rows and rewards as NeMo Gym's environment of this name. Different on purpose: there is no default contact; no
private address is read; nothing is loaded at the start; a prompt that the retrieval model cannot hold is
refused; there is no silent comparison without a judge; failures of services fail the rollout.
As a benchmark it has the 50 public questions of Vals AI (github.com/vals-ai/finance-agent); the score is the
share that is right, and the same by kind of question.
Source: the example rows, companies and filings are our own inventions.
"""

from __future__ import annotations

from functools import partial

from gym_runtime import Benchmark, Environment, Reply, ResourceError, Role, Session, Verdict, tool

from gym_resources.benchmarks.scoring.shares import by_category
from gym_resources.judging import grades
from gym_resources.judging.asking import Judging
from gym_resources.published_sets import filings
from gym_resources.web_search.documents import CharacterRange
from gym_resources.web_search.research import FinanceTask, Research, as_lists, final_result

Answer = dict[str, str]


class FinanceSearch(Session[FinanceTask]):
    judged_by_transcript = True

    async def open(self) -> None:
        if self.task.use_judge and self.models.get("judge") is None:
            raise ResourceError(
                "no model is given for the role 'judge': --judge PROVIDER/NAME, or --set use_judge=false "
                "to look for the expected answer in the submission",
                stage="judge",
            )
        self.research = Research(self.task, self.models.retrieval)

    @tool(adapt=as_lists)
    async def sec_filing_search(
        self, ticker: str, form_types: list[str] | None = None, start_date: str = "", end_date: str = ""
    ) -> Answer:
        """Search SEC EDGAR for a company's filings by its ticker; newest first, without their text."""
        work = self.research
        return {"results": work.closed() or await work.filings(ticker, form_types, start_date, end_date)}

    @tool
    async def parse_html_page(self, url: str, key: str) -> Answer:
        """Read an HTML page and keep its text in the data storage under a key."""
        return {"results": self.research.closed() or await self.research.keep(url, key)}

    @tool(adapt=as_lists)
    async def retrieve_information(
        self, prompt: str, input_character_ranges: list[CharacterRange] | None = None
    ) -> Answer:
        """Have a model answer a prompt with stored documents in it, each put in as {{key}}."""
        work = self.research
        return {"results": work.closed() or await work.ask(prompt, input_character_ranges or [])}

    @tool
    async def web_search(
        self, search_query: str, start_date: str = "", end_date: str = "", number_of_results: int = 10
    ) -> Answer:
        """Search the web."""
        work, asked = self.research, (search_query, start_date, end_date, number_of_results)
        return {"results": work.closed() or await work.web(*asked)}

    @tool
    def submit_final_result(self, final_result: str) -> dict[str, bool | str]:
        """Submit the final answer with its reasoning and sources; nothing can be done after it."""
        self.research.submitted = True
        return {"success": True, "result": final_result}

    async def call_unknown_tool(self, name: str, arguments: str) -> str:
        return f"There is no tool '{name[:100]}'. There are: {', '.join(TOOLS)}."

    async def verify(self, reply: Reply) -> Verdict:
        submission = submitted(reply)
        fields = {"expected_answer": self.task.expected_answer}
        if not submission.strip():
            return Verdict(0.0, fields={**fields, "judge_rating": 0, "judge_text": None})
        if not self.task.use_judge:
            found = self.task.expected_answer.casefold() in submission.casefold()
            return Verdict(float(found), fields={**fields, "judge_rating": None, "judge_text": None})
        judging = Judging(self.models.judge, self.task, lambda text: grades.grade(text, self.task.label_rule))
        asked = grades.prompt(self.task.question, self.task.expected_answer, submission)
        grade = await judging.label(asked, tries=grades.TRIES)
        rating = int(grade[2]) if grade else 0
        fields = {**fields, "judge_rating": rating, "judge_text": judging.texts[-1], **judging.fields()}
        return Verdict(grades.WORTH[self.task.reward_mode][rating], fields=fields)


def submitted(reply: Reply) -> str:
    """What was submitted last; empty if nothing was."""
    calls = [call for call in reply.function_calls if call.name == "submit_final_result"]
    return final_result(calls[-1].arguments) if calls else ""


TOOLS = ("sec_filing_search", "parse_html_page", "retrieve_information", "web_search", "submit_final_result")

environment = Environment(
    resource=FinanceSearch,
    description="Questions on companies, answered from their filings with the SEC.",
    domain="agent",
    max_turns=50,
    agent_options={"done_tools": ["submit_final_result"], "nudge": "Continue.", "tool_timeout_s": 300},
    replayable=False,
    opens_first=True,
    extra="search",
    roles=(
        Role(name="retrieval"),
        Role(name="judge", optional=True, sampling={"max_output_tokens": 8192}, timeout_s=60.0),
    ),
    benchmark=Benchmark(score=partial(by_category, field="question_type"), fields=("question_type",)),
    data_license="not stated for the questions; filings are in the public domain",
    datasets=(filings.PUBLIC,),
    agent_refs=("finance_agent",),
)
