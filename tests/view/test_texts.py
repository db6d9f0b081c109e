"""Answers as the page draws them: Markdown, formulas, and what differs between two."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from view import node

DRAW = """
const { Markdown } = await import(src + "/markdown.js");
const name = ({ type, props }) => type + (props.class ? "." + props.class : "");
const text = (node) => Array.isArray(node) ? node.map(text).join("")
  : typeof node === "object" && node ? `<${name(node)}>${text(node.props.children)}</${node.type}>`
  : String(node ?? "");
const answer = (texts) => texts.map((one) => text(Markdown({ text: one })));
"""
DIFFER = """
const { difference } = await import(src + "/difference.js");
const answer = (pairs) => pairs.map(([a, b]) => difference(a, b).map(({ kind, text }) => [kind, text]));
"""
needs_packages = pytest.mark.skipif(
    not (node.PAGE.parent / "node_modules").is_dir() or not shutil.which("node"),
    reason="the page's packages are not installed: npm install in viewer-page",
)


def drawn(*texts: str) -> list[str]:
    return node.run(DRAW, texts)


@needs_packages
def test_markdown() -> None:
    cases = {
        "# Title\ntext **strong** and *soft*": "<p.title t1>Title</p><p>text <strong>strong</strong> and "
        "<em>soft</em></p>",
        "```py\na < b\n```\nafter": "<code.fence>a < b</code><p>after</p>",
        "```\nnot closed": "<code.fence>not closed</code>",
        "- a\n1. b": "<ul.said-list><li><span.mark>•</span><span>a</span></li><li><span.mark>1.</span>"
        "<span>b</span></li></ul>",
        "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
        "`x*y*z` 2 * 3 * 4": "<p><code>x*y*z</code> 2 * 3 * 4</p>",
        "> said": "<blockquote>said</blockquote>",
        # No link, no image, no HTML.
        "[a](http://x.y) ![b](http://x.y/z.png)": "<p>[a](http://x.y) ![b](http://x.y/z.png)</p>",
        "<img src=x onerror=alert(1)>": "<p><img src=x onerror=alert(1)></p>",
    }
    assert dict(zip(cases, drawn(*cases), strict=True)) == cases


@needs_packages
def test_formulas() -> None:
    half = "<math><mrow><mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac></mrow></math>"
    cases = {
        r"so $\frac{1}{2}$.": f"<p>so {half}.</p>",
        r"\(\frac{1}{2}\)": f"<p>{half}</p>",
        r"$x_1^2$": "<p><math><mrow><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup></mrow></math></p>",
        r"\boxed{B}": "<p><math><mrow><mrow.boxed><mrow><mi>B</mi></mrow></mrow></mrow></math></p>",
        # Not understood, cut off, or no formula: as it was written.
        r"$\href{http://x.y}{z}$": r"<p><code.math>$\href{http://x.y}{z}$</code></p>",
        r"$\frac{1}{$": r"<p><code.math>$\frac{1}{$</code></p>",
        "$" + "{" * 99 + "$": f"<p><code.math>${'{' * 99}$</code></p>",
        "from $5 to $10": "<p>from $5 to $10</p>",
    }
    assert dict(zip(cases, drawn(*cases), strict=True)) == cases


@needs_packages
@pytest.mark.timeout(30)
def test_no_text_takes_long() -> None:
    hostile = [
        "$" * 50_000,
        "*" * 50_000,
        "`" * 50_000,
        "\\boxed{" * 7000,
        "|" * 50_000,
        "- " * 25_000,
        "\\(" * 9000,
    ]
    drawn(*hostile, "\n".join(["|a|"] * 20_000), "> \n" * 20_000, "$x^{" * 9000)


@pytest.mark.parametrize(
    ("a", "b", "pieces"),
    [
        ("the same", "the same", [["same", "the same"]]),
        ("it is B.", "it is C.", [["same", "it is "], ["only a", "B"], ["only b", "C"], ["same", "."]]),
        ("", "new", [["only b", "new"]]),
        ("a b c d", "a c d e", [["same", "a "], ["only a", "b "], ["same", "c d"], ["only b", " e"]]),
    ],
)
def test_words_that_differ(a: str, b: str, pieces: list[Any]) -> None:
    assert node.run(DIFFER, [[a, b]]) == [pieces]


@pytest.mark.slow
def test_long_texts_are_compared_whole() -> None:
    a, b = "x " * 50_000 + "end", "y " * 50_000 + "end"
    assert [kind for kind, _ in node.run(DIFFER, [[a, b]])[0]] == ["only a", "only b", "same"]
