"""The filings that the SEC lists for a ticker, and an SEC that is down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from gym_runtime.errors import ServiceUnavailable
from resources.finance_sec_search.filing_sessions import ANNUAL, use
from resources.web import World

pytest.importorskip("trafilatura", reason="needs pip install 'gym-runtime[search]'")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


async def filings(**fields: Any) -> list[str]:
    """The forms that are found."""
    settings = {name: fields.pop(name) for name in ("max_end_date", "max_filing_results") if name in fields}
    (said,), _ = await use(("sec_filing_search", {"ticker": "skrw", **fields}), **settings)
    found = json.loads(said)
    return [one["form"] for one in found] if isinstance(found, list) else [found["error"]]


async def test_filings_are_listed_newest_first(out: World) -> None:
    (said,), _ = await use(("sec_filing_search", {"ticker": " skrw "}))
    first, second = json.loads(said)
    assert first == {
        "ticker": "SKRW",
        "company_name": "Skerrow Lights",
        "form": "10-K",
        "filing_date": "2026-02-01",
        "report_date": "2025-12-31",
        "accession_number": "0000000042-26-000001",
        "filing_url": ANNUAL,
    }
    assert second["form"] == "10-Q"
    assert all("ada@example.com" in headers["User-Agent"] for headers in out.headers)


@pytest.mark.slow
async def test_filings_are_chosen_by_form_and_date(out: World) -> None:
    nothing = ["SKRW has no such filings."]
    assert await filings(form_types=["10-q"]) == ["10-Q"]
    assert await filings(form_types="['10-K', '8-K']") == ["10-K"], "a list as a text"
    assert await filings(form_types='["10-Q"]') == ["10-Q"]
    assert await filings(form_types="10-Q") == ["10-Q"]
    assert await filings(start_date="2026-01-01") == ["10-K"]
    assert await filings(end_date="2025-12-31") == ["10-Q"]
    assert await filings(start_date="2026-03-01") == nothing
    assert await filings(max_filing_results=1) == ["10-K"]
    assert await filings(start_date="soon") == ["'soon' is not a date."]


async def test_nothing_is_found_after_the_cut_off(out: World) -> None:
    assert await filings(max_end_date="2025-12-31") == ["10-Q"]
    assert await filings(max_end_date="2025-12-31", end_date="2027-01-01") == ["10-Q"]
    assert await filings(max_end_date="2026-12-31", end_date="2025-12-31") == ["10-Q"]


async def test_an_unknown_ticker(out: World) -> None:
    (said,), _ = await use(("sec_filing_search", {"ticker": "SKQQ"}))
    assert json.loads(said) == {
        "error": "There is no ticker 'SKQQ'.",
        "suggestion": "Tickers that begin like it: SKRW.",
    }


async def test_a_contact_is_demanded(out: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC_CONTACT", "somebody")
    with pytest.raises(ServiceUnavailable, match="SEC_CONTACT has no e-mail address"):
        await use()
    monkeypatch.delenv("SEC_CONTACT")
    with pytest.raises(ServiceUnavailable, match="SEC_CONTACT is not set"):
        await use()
    assert out.asked == []


@pytest.mark.slow
async def test_an_sec_that_is_down_is_a_failure(out: World) -> None:
    for status in (403, 429, 503):
        out.instead = lambda _, status=status: web.Response(status=status)
        for asked in (
            ("sec_filing_search", {"ticker": "SKRW"}),
            ("parse_html_page", {"url": ANNUAL, "key": "a"}),
        ):
            with pytest.raises(ServiceUnavailable) as raised:
                await use(asked)
            assert (raised.value.stage, raised.value.retryable) == ("resource", True)
    out.instead = lambda _: web.Response(text="<html>captcha</html>")
    with pytest.raises(ServiceUnavailable, match="cannot be read"):
        await use(("sec_filing_search", {"ticker": "SKRW"}))
