"""Documents of the SEC or of a dump, and the model that is asked about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from gym_runtime.errors import ModelUnavailable
from resources.finance_sec_search.filing_sessions import ANNUAL, use
from resources.judging import quotations
from resources.web import World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


async def test_a_page_that_the_sec_alone_refuses_is_a_text(out: World) -> None:
    """Else a model could spare itself a reward of 0."""
    out.instead = lambda request: web.Response(status=403) if "secret" in request.path else None
    said, _ = await use(
        ("parse_html_page", {"url": "https://www.sec.gov/secret", "key": "a"}),
        ("parse_html_page", {"url": "https://www.sec.gov/none", "key": "a"}),
        ("parse_html_page", {"url": "http://169.254.169.254/", "key": "a"}),
        ("parse_html_page", {"url": out.url, "key": "a"}),
    )
    assert "HTTP 403" in said[0]
    assert "HTTP 404" in said[1]
    assert "not a public address" in said[2]
    assert "not a public address" in said[3]


async def test_pages_are_kept_and_asked_about(out: World) -> None:
    said, scripted = await use(
        ("parse_html_page", {"url": ANNUAL, "key": "annual"}),
        ("parse_html_page", {"url": ANNUAL, "key": "annual"}),
        ("retrieve_information", {"prompt": "How often? {{annual}} {question}"}),
        (
            "retrieve_information",
            {
                "prompt": "Where? {{annual}}",
                "input_character_ranges": '[{"key": "annual", "start": 0, "end": 4}]',
            },
        ),
        answers=["Twice.", "There."],
    )
    assert said[0].startswith("SUCCESS")
    assert said[1].startswith("WARNING: the key 'annual' was there")
    assert said[2:] == ["Twice.", "There."]
    (_, first), (_, second) = scripted.asked
    assert "Use nothing but these documents" in first[0]["content"]
    assert "twice a day" in quotations(first[1]["content"])[0]
    assert first[1]["content"].endswith(" {question}")
    assert "x()" not in first[1]["content"]
    assert quotations(second[1]["content"]) == ["Home"]


async def test_prompts_that_cannot_be_asked(out: World) -> None:
    said, scripted = await use(
        ("parse_html_page", {"url": ANNUAL, "key": "annual"}),
        ("parse_html_page", {"url": ANNUAL, "key": "{{a}}"}),
        ("retrieve_information", {"prompt": "How often?"}),
        ("retrieve_information", {"prompt": "{{none}}"}),
        ("retrieve_information", {"prompt": "{{annual}}" * 100}),
        retrieval_max_output_tokens=50,
        retrieval_model_context_length=1000,
    )
    assert "no braces" in said[1]
    assert "refers to no document" in said[2]
    assert "there is no key 'none'" in said[3]
    assert "reads at most 3800" in said[4]
    assert scripted.asked == []


async def test_a_retrieval_model_that_fails_is_a_failure(out: World) -> None:
    with pytest.raises(ModelUnavailable) as raised:
        await use(
            ("parse_html_page", {"url": ANNUAL, "key": "a"}),
            ("retrieve_information", {"prompt": "{{a}}"}),
            answers=[ModelUnavailable("gone")],
        )
    assert raised.value.stage == "retrieval"


@pytest.mark.slow
async def test_the_dump_is_read_before_the_sec(
    out: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "dump" / "SKRW" / "10-K" / "2026" / "0000000042-26-000001"
    place.mkdir(parents=True)
    (place / "primary-document.html").write_text("<p>From the dump.</p>")
    monkeypatch.setenv("GYM_SEC_DUMP", str(tmp_path / "dump"))
    said, scripted = await use(
        ("parse_html_page", {"url": ANNUAL, "key": "a"}),
        ("retrieve_information", {"prompt": "{{a}}"}),
        ("parse_html_page", {"url": ANNUAL.replace("000001", "000002"), "key": "a"}),
        answers=["x"],
    )
    assert quotations(scripted.asked[0][1][1]["content"]) == ["From the dump."]
    assert "HTTP 404" in said[2]
    assert not any("annual.htm" in asked for asked in out.asked[:1])
