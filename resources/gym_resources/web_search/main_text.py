"""The text of HTML pages. Pages are hostile, so this runs in processes that can be killed (`web_pages`)."""

from __future__ import annotations

from typing import Any, cast


def main_text(html: bytes, words: int) -> str:
    """The main text of a page, without menus, advertisements and comments; shortened in its middle.

    Empty if it has none, or if the library cannot read the page.
    Source: github.com/adbar/trafilatura (Apache-2.0).
    """
    import trafilatura  # pyright: ignore[reportMissingImports]

    try:
        found = cast("Any", trafilatura).extract(html, include_comments=False)
    except Exception:  # noqa: BLE001 - whatever a page makes the library raise, the page has no text
        return ""
    return shortened(found or "", words)


def all_text(html: bytes, characters: int) -> str:
    """All text of a page, a line for each of its lines that has any, without scripts and styles.

    A table's row is a line, its cells are separated by bars. At most so many characters.
    """
    from lxml import html as library  # pyright: ignore[reportMissingImports]

    try:
        document: Any = cast("Any", library).document_fromstring(html, ensure_head_body=True)
    except Exception:  # noqa: BLE001 - as above
        return ""
    for element in document.xpath("//script|//style|//head|//noscript|//comment()"):
        element.drop_tree()
    for cell in document.xpath("//td|//th"):
        cell.tail = " | " + (cell.tail or "")
    for element in document.xpath("//p|//div|//br|//tr|//li|//h1|//h2|//h3|//h4|//h5|//h6|//table"):
        element.tail = "\n" + (element.tail or "")
    lines = (" ".join(line.split()) for line in document.text_content().splitlines())
    return "\n".join(line for line in lines if line.strip("| "))[:characters]


def shortened(text: str, words: int) -> str:
    """A text of more than so many words as its first and its last half of them.

    >>> shortened("one two three four five six", 4)
    'one two\\n...\\nfive six'
    """
    spans = text.split()
    if len(spans) <= words:
        return text
    half = words // 2
    return f"{' '.join(spans[:half])}\n...\n{' '.join(spans[-half:])}"
