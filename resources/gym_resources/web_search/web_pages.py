"""Pages as text. The parsers run in sandboxed processes: a page may make them run for ever, or die."""

from __future__ import annotations

from typing import TypeVar

from gym_data.web import Fetcher, PageUnavailable, WebAnswer
from gym_runtime import ResourceError, run_isolated
from gym_sandbox import ProcessDied

from gym_resources.web_search.main_text import all_text, main_text, shortened

LIMIT_S = 10.0
WORDS = 10_000
IMPORTS = ("trafilatura", "trafilatura.settings", "lxml.html")
_T = TypeVar("_T")


async def browse(fetcher: Fetcher, url: str) -> str:
    """The main text of a page, at most `WORDS` words of it; or, for the model, why the page has no text.

    Raises:
        ServiceUnavailable: the network is gone.
    """
    try:
        answer = await fetcher.page(url)
        return await readable(answer)
    except PageUnavailable as error:
        return f"Error: {error}"


async def readable(answer: WebAnswer) -> str:
    """The main text of an answer.

    Raises:
        PageUnavailable: it is an error, or has none.
    """
    check(answer)
    if is_html(answer):
        text = await _parsed(main_text, answer.body, WORDS)
    else:
        text = shortened(answer.body.decode(errors="replace"), WORDS)
    if not text.strip():
        raise PageUnavailable("no text was found on the page")
    return text


async def whole_text(answer: WebAnswer, characters: int) -> str:
    """All text of an answer, line by line, at most so many characters.

    Raises:
        PageUnavailable: it is an error, or has none.
    """
    check(answer)
    if is_html(answer):
        text = await _parsed(all_text, answer.body, characters)
    else:
        text = answer.body.decode(errors="replace")[:characters]
    if not text.strip():
        raise PageUnavailable("no text was found on the page")
    return text


def check(answer: WebAnswer) -> None:
    """
    Raises:
        PageUnavailable: the status is not one of success.
    """
    if not 200 <= answer.status < 300:
        raise PageUnavailable(f"HTTP {answer.status}")


def is_html(answer: WebAnswer) -> bool:
    """Whether it is to be parsed; what says nothing of itself is."""
    return not answer.media_type or "html" in answer.media_type or "xml" in answer.media_type


async def _parsed(parse: object, body: bytes, limit: int) -> str:
    parser = main_text if parse is main_text else all_text
    while True:
        try:
            return await run_isolated(parser, body, limit, timeout_s=LIMIT_S, imports=IMPORTS)
        except TimeoutError as error:
            raise PageUnavailable("its text cannot be read") from error
        except ResourceError as error:
            if not isinstance(error.__cause__, ProcessDied):
                raise
            if "quarantined" in error.message:
                raise PageUnavailable("its text cannot be read") from error
