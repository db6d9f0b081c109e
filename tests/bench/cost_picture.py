"""Draws the first row of the table of docs/explanation/benchmarks.md as bars:

python tests/bench/cost_picture.py > docs/images/cost.svg
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "benchmarks.md"
WIDTH, LEFT, BAR, STEP, TOP = 760, 190, 24, 38, 56
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}.title{font-weight:bold}.name{text-anchor:end}"
    ".page{fill:#fff}.bar{fill:#9db4cd}.ours{fill:#1a6fb5}"
    "@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.page{fill:#111827}"
    ".bar{fill:#50647c}.ours{fill:#4aa3ea}}"
)


def costs(page: str) -> list[tuple[str, float]]:
    """The table's columns and their figures, the cheapest first."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    (_, *names), (title, *figures) = rows[0], next(row for row in rows if "= 1" in row[0])
    assert len(names) == len(figures), title
    return sorted(zip(names, map(float, figures), strict=True), key=lambda one: one[1])


def drawing(page: str) -> str:
    """The picture."""
    title = "CPU per rollout: two model calls, a tool call, a verification; bare loop = 1"
    return bars(title, costs(page), ours={"gym-runtime"})


def bars(title: str, found: Sequence[tuple[str, float]], *, ours: Collection[str], left: int = LEFT) -> str:
    """Figures as bars with their names, from top to bottom; ``ours`` are in another colour."""
    height, most = TOP + STEP * len(found) + 8, max(figure for _, figure in found)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f'<style>{_STYLE}</style>\n<rect class="page" width="{WIDTH}" height="{height}" rx="10"/>',
        f'<text class="title" x="20" y="30">{escape(title)}</text>',
    ]
    for row, (name, figure) in enumerate(found):
        y = TOP + STEP * row
        length = (WIDTH - left - 80) * figure / most
        kind = "bar ours" if name in ours else "bar"
        lines += [
            f'<text class="name" x="{left - 12}" y="{y + 17}">{escape(name.replace("`", ""))}</text>',
            f'<rect class="{kind}" x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text x="{left + length + 8:.1f}" y="{y + 17}">{figure:g}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])


if __name__ == "__main__":
    print(drawing(PAGE.read_text()), end="")
