"""One search and one page, through the tools of the environment."""

from __future__ import annotations

import json
from typing import Any

from resources.judging import outputs, row

ENGINES = ["google", "tavily", "brave", "searxng"]


def task(**fields: Any) -> bytes:
    return row(**{"expected_answer": "B", **fields})


async def search(query: str, **fields: Any) -> Any:
    (said,) = await outputs("google_search", task(**fields), [("search", {"query": query})])
    return json.loads(said)["search_results"]


async def browse(url: str, **fields: Any) -> str:
    (said,) = await outputs("google_search", task(**fields), [("browse", {"url": url})])
    return json.loads(said)["page_content"]
