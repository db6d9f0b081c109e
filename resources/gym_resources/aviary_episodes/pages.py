"""The pages that the library's search finds: the row's, or Wikipedia's.

The library looks for a page in a cache before it asks Wikipedia. A row's pages take the place of that cache,
so the library itself still parses the pages and answers searches for missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

PAGES_AT_MOST = 500


class RowPages:
    """Answers every search with one of these pages, or with the titles that share a word with it."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = {_key(title): (title, text) for title, text in pages.items()}

    def __getitem__(self, search: str) -> str:
        found = self._pages.get(_key(search))
        if found is not None:
            return "".join(f"<p>{escape(paragraph)}</p>" for paragraph in found[1].splitlines())
        words = set(_key(search).split())
        similar = [title for key, (title, _) in self._pages.items() if words & set(key.split())]
        return "".join(
            f'<div class="mw-search-result-heading">{escape(title)}</div>'
            for title in similar or (title for title, _ in self._pages.values())
        )


class RecentPages(dict[str, str]):
    """The pages that were read last; the library's own cache would grow without end."""

    def __setitem__(self, search: str, page: str) -> None:
        while len(self) >= PAGES_AT_MOST:
            del self[next(iter(self))]
        super().__setitem__(search, page)


def _key(search: str) -> str:
    """The normal form of a search, as the library writes it, and of a title."""
    return " ".join(search.replace("+", " ").strip("[]").casefold().split())
