"""EDGAR, the SEC's filings: companies by ticker, their filings, and the documents, live or from a local dump.

The SEC asks programs to name a contact in each request, and for at most ten requests per second from one
machine; it answers those that do not comply with 403. ``SEC_CONTACT`` holds the contact, such as
``Ada Lovelace ada@example.com``; there is no default. ``GYM_SEC_DUMP`` may name a folder with documents as
``TICKER/FORM/YEAR/ACCESSION/primary-document.html``, which are read from there.
Source: sec.gov/os/accessing-edgar-data; what the SEC publishes is in the public domain.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
from gym_data.web import Bounds, Fetcher, Said, Service, WebAnswer, WebRequest, host_of, said
from gym_runtime import ServiceUnavailable
from gym_runtime.errors import UNREADABLE

CONTACT = "SEC_CONTACT"
DUMP = "GYM_SEC_DUMP"
PROBE_URL = "https://www.sec.gov/robots.txt"
_ARCHIVED = re.compile(r"/Archives/edgar/data/(\d{1,10})/(\d{10}-?\d{2}-?\d{6})/", re.ASCII)
_ACCESSION = re.compile(r"\d{10}-\d{2}-\d{6}", re.ASCII)
_TICKER = re.compile(r"[A-Z0-9.\-]{1,12}", re.ASCII)


def _sign(request: WebRequest, contact: str) -> WebRequest:
    return msgspec.structs.replace(request, headers={"User-Agent": f"gym-runtime {contact}"})


def _said(answer: WebAnswer) -> Said:
    """A machine that asks too often gets 403 for a while."""
    return "limited" if answer.status == 403 else said(answer)


SEC = Service(
    name="sec",
    url="https://www.sec.gov",
    key_variable=CONTACT,
    key_is="your name and e-mail address, which the SEC demands of programs",
    sign=_sign,
    said=_said,
    per_s=10.0,
    timeout_s=30.0,
    size_bytes=50_000_000,
)


class Company(msgspec.Struct, frozen=True):
    """A company that files."""

    cik: int = msgspec.field(name="cik_str")
    ticker: str = ""
    title: str = ""


class Filing(msgspec.Struct, frozen=True, kw_only=True):
    """A filing, as the model reads it; dates as YYYY-MM-DD."""

    ticker: str
    company_name: str
    form: str
    filing_date: str
    report_date: str
    accession_number: str
    filing_url: str


class _Columns(msgspec.Struct):
    accession: list[str] = msgspec.field(name="accessionNumber", default_factory=list[str])
    form: list[str] = msgspec.field(default_factory=list[str])
    filed: list[str] = msgspec.field(name="filingDate", default_factory=list[str])
    reported: list[str] = msgspec.field(name="reportDate", default_factory=list[str])
    document: list[str] = msgspec.field(name="primaryDocument", default_factory=list[str])


class _File(msgspec.Struct):
    name: str
    first: str = msgspec.field(name="filingFrom", default="")
    last: str = msgspec.field(name="filingTo", default="")


class _Filings(msgspec.Struct):
    recent: _Columns
    files: list[_File] = []


class _Submissions(msgspec.Struct):
    name: str
    filings: _Filings


class Edgar:
    """The filings that a session may see."""

    services = (SEC,)

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    @staticmethod
    def check() -> None:
        """
        Raises:
            ServiceUnavailable: there is no contact, or it has no e-mail address.
        """
        SEC.check()
        if not all("@" in contact for contact in SEC.keys):
            raise ServiceUnavailable(
                f"{CONTACT} has no e-mail address; it needs one for the SEC, such as 'Ada ada@example.com'",
                stage="resource",
            )

    async def companies(self) -> dict[str, Company]:
        """All companies, by ticker in upper case."""
        found = await self._json("https://www.sec.gov/files/company_tickers.json", dict[str, Company])
        return {company.ticker.upper(): company for company in found.values()}

    async def filings(self, company: Company, since: str, until: str) -> list[Filing]:
        """The filings of a company within two dates, each included, the newest first."""
        base = "https://data.sec.gov/submissions"
        found = await self._json(f"{base}/CIK{company.cik:010}.json", _Submissions)
        columns = [found.filings.recent]
        for file in found.filings.files:
            overlaps = (not file.last or file.last >= since) and (not file.first or file.first <= until)
            if overlaps and re.fullmatch(r"[\w.\-]+", file.name):
                columns.append(await self._json(f"{base}/{file.name}", _Columns))
        filings = [filing for part in columns for filing in _rows(company, found.name, part)]
        within = [filing for filing in filings if since <= filing.filing_date <= until]
        return sorted(within, key=lambda filing: filing.filing_date, reverse=True)

    async def document(self, url: str) -> WebAnswer:
        """A document at the SEC, from the dump if it is there.

        Raises:
            PageUnavailable: it cannot be had.
            ServiceUnavailable: the SEC serves nothing now.
        """
        dumped = await self._dumped(url)
        if dumped is not None:
            return WebAnswer(status=200, url=url, media_type="text/html", body=dumped)
        bounds = Bounds(timeout_s=SEC.timeout_s, size_bytes=SEC.size_bytes)
        return await self._fetcher.page(
            url, bounds, service=SEC, probe=WebRequest(url=SEC.located(PROBE_URL))
        )

    async def _dumped(self, url: str) -> bytes | None:
        folder, place = os.environ.get(DUMP), _ARCHIVED.search(url)
        if not folder or not place:
            return None
        cik, accession = int(place[1]), _with_dashes(place[2])
        tickers = [one.ticker for one in (await self.companies()).values() if one.cik == cik]
        return await anyio.to_thread.run_sync(_read, folder, tickers, accession)

    async def _json(self, url: str, kind: type[Any]) -> Any:
        request = WebRequest(url=SEC.located(url))
        answer = await self._fetcher.recorded(url, partial(self._fetcher.ask, SEC, request))
        if answer is None:
            raise ServiceUnavailable(f"the recording has no answer to {url}", stage="resource")
        try:
            if answer.status == 200:
                return msgspec.json.decode(answer.body, type=kind)
            problem = f"it answered {url} with HTTP {answer.status}"
        except UNREADABLE as error:
            problem = f"what it answered to {url} cannot be read: {error}"
        raise ServiceUnavailable(f"sec is unavailable: {problem}", stage="resource", retryable=True)


def is_sec(url: str) -> bool:
    """Whether a URL is one of the SEC's."""
    return host_of(url).lower() in ("www.sec.gov", "sec.gov", "data.sec.gov")


def _rows(company: Company, name: str, part: _Columns) -> list[Filing]:
    return [
        Filing(
            ticker=company.ticker.upper(),
            company_name=name,
            form=form,
            filing_date=filed,
            report_date=reported,
            accession_number=accession,
            filing_url=f"https://www.sec.gov/Archives/edgar/data/{company.cik}/"
            f"{accession.replace('-', '')}/{document}",
        )
        for accession, form, filed, reported, document in zip(
            part.accession, part.form, part.filed, part.reported, part.document, strict=False
        )
    ]


def _with_dashes(accession: str) -> str:
    digits = accession.replace("-", "")
    return f"{digits[:10]}-{digits[10:12]}-{digits[12:]}"


def _read(folder: str, tickers: list[str], accession: str) -> bytes | None:
    if not _ACCESSION.fullmatch(accession):
        return None
    for ticker in tickers:
        if _TICKER.fullmatch(ticker):
            for path in Path(folder).expanduser().glob(f"{ticker}/*/*/{accession}/primary-document.html"):
                return path.read_bytes()
    return None
