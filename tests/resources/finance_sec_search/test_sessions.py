"""The web search, the end of a session, and rows and tools that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gym_runtime.environment import catalogue
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.roles import ScriptedAnswers
from gym_runtime.errors import TaskError
from resources.finance_sec_search.filing_sessions import NAME, QUESTION, use
from resources.judging import row
from resources.web import KEY, World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = pytest.mark.anyio


async def test_the_web_search_needs_a_key(out: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("web_search", {"search_query": "tides", "end_date": "2027-01-01", "number_of_results": 50})
    (said,), _ = await use(asked)
    assert said == "ERROR: there is no web search here."
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    monkeypatch.setenv("GYM_TAVILY_URL", out.url)
    (said,), _ = await use(asked, max_end_date="2026-01-01")
    assert said.startswith("[1] Tides")
    assert (out.bodies[-1]["end_date"], out.bodies[-1]["max_results"]) == ("2026-01-01", 20)
    assert out.bodies[-1]["search_depth"] == "fast"


async def test_after_the_end_there_is_nothing_to_do(out: World) -> None:
    said, _ = await use(
        ("submit_final_result", {"final_result": "1,284"}), ("sec_filing_search", {"ticker": "SKRW"})
    )
    assert json.loads(said[0]) == {"success": True, "result": "1,284"}
    assert "was submitted" in said[1]
    (said,), _ = await use(("sec_filing_search", {"ticker": "SKRW"}), max_rollout_time_seconds=1e-9)
    assert "Call submit_final_result" in said
    assert out.asked == []


async def test_an_unknown_tool_is_answered_with_the_known_ones(out: World) -> None:
    resource = catalogue.environment(NAME).resource
    scripted = ScriptedAnswers({"retrieval": [], "judge": []})
    async with session_of(resource, row(**QUESTION), scripted.models(resource.roles)) as session:
        assert "parse_html_page" in await resource.call_tool(session, "google", "{}")


@pytest.mark.parametrize(
    "wrong",
    [{"expected_answer": " "}, {"max_end_date": "soon"}, {"retrieval_max_output_tokens": 200_000}],
)
def test_rows_that_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        catalogue.environment(NAME).resource.task(row(**{**QUESTION, **wrong}))
