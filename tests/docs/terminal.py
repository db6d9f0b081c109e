"""A terminal's session as an SVG that moves: the command is typed, then its lines appear in their order.

It plays once and ends on the whole session; a reader who prefers no motion sees that at once. The picture
has its own background, so it reads the same on a light and on a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

CELL, LINE, MARGIN, BAR = 7.85, 19, 18, 30
TYPED_S = 1.6
_STYLE = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6deeb;"
    "white-space:pre}.name{fill:#9aa8bd}.strong{fill:#7fdbca;font-weight:bold}.prompt{fill:#addb67}"
    ".line{animation:show 1ms both}@keyframes show{from{opacity:0}}"
    "@media (prefers-reduced-motion:reduce){.line{animation:none}}"
)


class Line(NamedTuple):
    """A line of output, and when it appears, in seconds from the first one."""

    text: str
    at_s: float


def typed(command: str) -> list[str]:
    """The command over lines of a terminal.

    >>> typed("gym-runtime run mcqa xstest --repeats 2")
    ['gym-runtime run mcqa xstest \\\\', '    --repeats 2']
    """
    head, *options = re.split(r" (?=--)", command)
    return [f"{head} \\", f"    {' '.join(options)}"] if options else [head]


def drawing(title: str, command: Sequence[str], output: Sequence[Line]) -> str:
    """The picture of a command, which may take several lines, and of its output."""
    columns = max(len(text) for text in [*command, *(line.text for line in output)]) + 2
    width = round(2 * MARGIN + columns * CELL)
    height = BAR + 2 * MARGIN + LINE * (len(command) + len(output))
    step_s = TYPED_S / len(command)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="9" fill="#0b1a2c"/>',
        *(f'<circle cx="{22 + 18 * place}" cy="17" r="5" fill="#3b4d66"/>' for place in range(3)),
    ]
    for row, text in enumerate(command):
        prompt = '<tspan class="prompt">$ </tspan>' if row == 0 else "  "
        lines.append(_text(row, row * step_s, f"{prompt}{escape(text)}"))
    for row, line in enumerate(output):
        if line.text:
            lines.append(_text(len(command) + row, TYPED_S + line.at_s, "".join(_coloured(line.text))))
    return "\n".join([*lines, "</svg>\n"])


def _text(row: int, at_s: float, markup: str) -> str:
    y = BAR + MARGIN + LINE * (row + 0.5)
    return f'<text class="line" x="{MARGIN}" y="{y:g}" style="animation-delay:{at_s:.2f}s">{markup}</text>'


def _coloured(text: str) -> Iterator[str]:
    """The name of a summary's line, and what is behind it; the reward stands out."""
    found = re.fullmatch(r"([a-z@0-9 ]+?)(  +)(\S.*)", text)
    if found is None:
        yield escape(text)
        return
    name, space, value = found.groups()
    yield f'<tspan class="name">{name}</tspan>{space}'
    yield f'<tspan class="strong">{escape(value)}</tspan>' if name == "mean reward" else escape(value)
