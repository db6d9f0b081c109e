"""Draws rates over time as SVG: what was measured, and the steps that were to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 60, 740, 50, 290
_STYLE = (
    "text{font:12px sans-serif;fill:#444}.title{font-weight:bold}.end{text-anchor:end}"
    ".middle{text-anchor:middle}.grid{stroke:#ddd}.wanted{fill:none;stroke:#999;stroke-dasharray:4 3}"
    ".measured{fill:none;stroke:#1a6fb5;stroke-width:1.8}"
)


class Step(NamedTuple):
    """A stretch of time, in seconds, in which a rate was to be reached."""

    label: str
    start_s: float
    end_s: float
    wanted: float


def drawing(title: str, points: Sequence[tuple[float, float]], steps: Sequence[Step]) -> str:
    """The picture, of rates by their times in seconds."""
    end_s = max(step.end_s for step in steps)
    top = 1.15 * max(max(rate for _, rate in points), max(step.wanted for step in steps))

    def x(at_s: float) -> float:
        return LEFT + (RIGHT - LEFT) * at_s / end_s

    def y(rate: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * rate / top

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" class="title">{title}</text>',
    ]
    for rate in range(0, int(top) + 1, 20):
        lines.append(f'<path class="grid" d="M{LEFT} {y(rate):.1f}H{RIGHT}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" class="end">{rate}</text>')
    for at_s in range(0, int(end_s) + 1, 10):
        lines.append(f'<text x="{x(at_s):.1f}" y="{BOTTOM + 18}" class="middle">{at_s} s</text>')
    for step in steps:
        middle = x((step.start_s + step.end_s) / 2)
        lines.append(f'<text x="{middle:.1f}" y="{TOP - 8}" class="middle">{step.label}</text>')
    wanted = "".join(
        f"{'L' if index else 'M'}{x(step.start_s):.1f} {y(step.wanted):.1f}H{x(step.end_s):.1f}"
        for index, step in enumerate(steps)
    )
    curve = "L".join(f"{x(at_s):.1f} {y(rate):.1f}" for at_s, rate in points)
    lines += [
        f'<path class="wanted" d="{wanted}"/>\n<path class="measured" d="M{curve}"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 12}">solid: measured; dashed: slots / latency</text>\n</svg>\n',
    ]
    return "\n".join(lines)
