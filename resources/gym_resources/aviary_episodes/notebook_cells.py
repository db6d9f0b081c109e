"""A notebook: cells with their outputs, and its text."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

CELL_CHARACTERS = 100_000
TEXT_CHARACTERS = 200_000
_TICKS = re.compile(r"`{3,}")


Code = Annotated[str, Meta(description="Python code; lines with ! and cells with %%bash run in a shell.")]
Index = Annotated[
    int | None,
    Meta(description="The cell to replace and run; a new cell is appended if it is left out, or too large."),
]


class Cell(msgspec.Struct):
    """A cell of code, and what it wrote when it ran last."""

    source: str
    output: str = ""


class Notebook:
    """The cells, in order."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def place(self, index: int | None) -> int:
        """Where a cell goes: at an index that there is, else behind the last one.

        >>> Notebook().place(7), Notebook().place(-1), Notebook().place(None)
        (0, 0, 0)
        """
        return index if index is not None and 0 <= index < len(self.cells) else len(self.cells)

    def put(self, index: int, cell: Cell) -> None:
        """Replace a cell, or append one."""
        self.cells[index : index + 1] = [cell]

    def markdown(self) -> str:
        """The cells and their outputs; of a long notebook the end. A fence within a cell or an output ends
        none of these: the fence around it is longer, as Markdown has it.

        >>> notebook = Notebook()
        >>> notebook.put(0, Cell("1 + 1", "2"))
        >>> print(notebook.markdown())
        ### Cell 0:
        ```python
        1 + 1
        ```
        ### Output 0:
        ```
        2
        ```
        """
        parts: list[str] = []
        for number, cell in enumerate(self.cells):
            parts += [f"### Cell {number}:", *_fenced(cell.source, "python")]
            if cell.output:
                parts += [f"### Output {number}:", *_fenced(cell.output)]
        text = "\n".join(parts)
        return text if len(text) <= TEXT_CHARACTERS else f"[…]\n{text[-TEXT_CHARACTERS:]}"


def _fenced(text: str, language: str = "") -> tuple[str, str, str]:
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}{language}", text, fence
