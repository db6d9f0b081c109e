"""A table for the terminal that draws only the lines in sight, so a thousand rows cost what thirty do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gym_runtime.escapes import shown
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gym_view.system_tables import Row

GAP = 2
_HEAD, _CHOSEN, _BAD = Style(bold=True), Style(reverse=True), Style(color="yellow")


class Lines(ScrollView, can_focus=True):
    """Rows under a heading that stays; one is chosen. Texts are shown as they are, without markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-20)", show=False),
        Binding("pagedown", "move(20)", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._head: tuple[str, ...] = ()
        self._lines: list[Row] = []
        self._widths: list[int] = []
        self._right: list[bool] = []
        self.chosen = ""

    def show(self, head: Sequence[str], lines: Sequence[Row], right: Sequence[bool]) -> None:
        """Show these rows. The chosen row stays chosen while it exists; otherwise the first row is chosen."""
        self._head, self._lines, self._right = tuple(head), list(lines), list(right)
        rows = [self._head, *(line.cells for line in self._lines)]
        self._widths = [max(len(row[place]) for row in rows) for place in range(len(self._head))]
        if self._lines and all(line.key != self.chosen for line in self._lines):
            self.chosen = self._lines[0].key
        width = sum(self._widths) + GAP * len(self._widths)
        size = Size(width, len(self._lines) + 1)
        if self.virtual_size != size:
            self.virtual_size = size
        self.refresh()

    def action_move(self, by: int) -> None:
        """Choose another row."""
        keys = [line.key for line in self._lines]
        if not keys:
            return
        at = keys.index(self.chosen) if self.chosen in keys else 0
        at = min(max(0, at + by), len(keys) - 1)
        self.chosen = keys[at]
        # One line more above, because the heading covers the first one in sight.
        self.scroll_to_region(Region(0, at, 1, 2), animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        scroll_x, scroll_y = self.scroll_offset
        if y == 0:
            return self._strip(self._head, _HEAD, scroll_x)
        at = y + scroll_y - 1
        if at >= len(self._lines):
            return Strip.blank(self.size.width)
        line = self._lines[at]
        style = _BAD if line.bad else Style()
        return self._strip(line.cells, style + _CHOSEN if line.key == self.chosen else style, scroll_x)

    def _strip(self, cells: tuple[str, ...], style: Style, scroll_x: int) -> Strip:
        padded = [
            shown(cell.rjust(width) if right else cell.ljust(width))
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        ]
        text = (" " * GAP).join(padded)
        return Strip([Segment(text, style)]).crop_extend(scroll_x, scroll_x + self.size.width, style)
