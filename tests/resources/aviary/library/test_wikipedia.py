"""The searches of HotpotQA: in a row's pages, and in Wikipedia."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from gym_resources.aviary_episodes.pages import PAGES_AT_MOST, RecentPages
from gym_runtime import Reply
from gym_runtime.environment.replaying import session_of
from gym_runtime.environment.shapes import Episode
from gym_runtime.errors import ServiceUnavailable
from resources.aviary.library.library_runs import QUESTION, needed, row, steps
from resources.judging import call

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_searches_are_answered_from_the_rows_pages() -> None:
    resource = needed("hotpotqa_aviary")
    read, worth, over = await steps(
        resource,
        QUESTION,
        [call("search", {"entity": "Babbage"})],
        [call("search", {"entity": "charles babbage"})],
        [call("lookup", {"keyword": "engine"}, "a"), call("lookup", {"keyword": "engine"}, "b")],
        [call("search", {"entity": "weather"}), call("fly", {}, "d")],
        [call("submit_answer", {"answer": "It was the Ada Lovelace!"})],
    )
    assert read == [
        ["Search for 'Babbage' returned no results. Similar: ['Charles Babbage']."],
        ["Charles Babbage was an engineer. He <planned> an engine & never finished it.."],
        [
            "(Result 1 / 1) Charles Babbage was an engineer. He <planned> an engine & never finished it.",
            "No more results.",
        ],
        [
            "Search for 'weather' returned no results. Similar: ['Ada Lovelace', 'Charles Babbage'].",
            "Invalid tool call: fly",
        ],
        ["Finished."],
    ]
    assert (worth, over) == ([0, 0, 0, 0, 1.0], True)


@pytest.mark.slow
async def test_the_first_submission_of_an_answer_counts() -> None:
    names = ["Charles Babbage", *["Ada Lovelace"] * 3]
    submits = [call("submit_answer", {"answer": name}, str(place)) for place, name in enumerate(names)]
    resource = needed("hotpotqa_aviary")
    assert (await steps(resource, QUESTION, submits))[1:] == ([0.0], True)
    assert (await steps(resource, QUESTION, submits[1:]))[1:] == ([1.0], True)


@pytest.mark.parametrize(
    ("answer", "reward", "over"),
    [
        (call("submit_answer", {"answer": "Charles Babbage"}), 0.0, True),
        (call("submit_answer", {"answer": ""}), 0.0, True),
        (call("search", {"entity": ""}), 0.0, True),
        (call("lookup", {"keyword": "notes"}), 0.0, False),
        (call("search", {"keyword": "Ada"}), 0.0, False),
    ],
)
async def test_what_leads_nowhere_is_worth_nothing(answer: Any, reward: float, over: bool) -> None:
    _, worth, ended = await steps(needed("hotpotqa_aviary"), QUESTION, [answer])
    assert (worth, ended) == ([reward], over)


@pytest.mark.slow
async def test_a_wikipedia_that_is_not_there_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = needed("hotpotqa_aviary")
    async with session_of(resource, row(QUESTION)) as session:
        assert isinstance(session, Episode)
        await resource.reset(session)
        monkeypatch.setattr(session.environment, "wiki_cache", {})  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setattr(session.environment, "proxy", "http://127.0.0.1:1")
        with anyio.fail_after(30), pytest.raises(ServiceUnavailable, match="Wikipedia cannot be") as raised:
            await resource.step(session, Reply.of(call("search", {"entity": "Ada"})).raw)
    assert raised.value.stage == "resource"


def test_wikipedia_is_remembered_within_bounds() -> None:
    pages = RecentPages()
    for number in range(PAGES_AT_MOST + 2):
        pages[str(number)] = "page"
    assert len(pages) == PAGES_AT_MOST
    assert "1" not in pages
    assert "2" in pages
