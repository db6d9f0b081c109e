"""What Lean says of a program: its messages, and the axioms that a theorem needs.

Lean writes its messages, errors too, to the standard output. A program can write there as well, so the
axioms count only as the union of all lines that name them: a forged line cannot hide the true one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

ALLOWED = frozenset({"propext", "Classical.choice", "Quot.sound"})
_LINE = re.compile(
    r"^(?:[^\n]{0,1000}?):([0-9]{1,9}):([0-9]{1,9}): (error|warning|info)(?:\([^)\n]{0,100}\))?: ?"
)
_HOLE = re.compile(r"declaration uses [`']?sorry")
Status = Literal["completed", "failed", "timeout"]


class Position(msgspec.Struct, frozen=True):
    line: int
    column: int = 0


class Message(msgspec.Struct, frozen=True):
    """A message of Lean, in the form of its REPL; lines count from 1 in the program."""

    severity: str
    pos: Position
    data: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What Lean says of a program.

    Attributes:
        status: ``failed`` if there is an error.
        messages: in order.
        output: all that Lean wrote, for the row.
    """

    status: Status
    messages: tuple[Message, ...] = ()
    output: str = ""

    @property
    def errors(self) -> list[Message]:
        return [message for message in self.messages if message.severity == "error"]

    @property
    def has_hole(self) -> bool:
        return any(_HOLE.search(message.data) for message in self.messages)

    def axioms(self, name: str) -> frozenset[str] | None:
        """The axioms that a theorem needs; None if Lean did not say so."""
        found: set[str] | None = None
        free = f"'{name}' does not depend on any axioms"
        needs = f"'{name}' depends on axioms: ["
        for message in self.messages:
            if free in message.data:
                found = found or set()
            for part in message.data.split(needs)[1:]:
                listed = part.partition("]")[0]
                found = (found or set()) | {axiom.strip() for axiom in listed.split(",")}
        return None if found is None else frozenset(found)


def judged(messages: Iterable[Message], output: str) -> Checked:
    """The result of a program that Lean has read to its end."""
    kept = tuple(messages)
    failed = any(message.severity == "error" for message in kept)
    return Checked(status="failed" if failed else "completed", messages=kept, output=output)


def read_text(output: str) -> list[Message]:
    """The messages in what ``lean FILE`` writes; a text before a first place, or without one, is an info."""
    found: list[Message] = []
    severity, place, text = "info", Position(0), list[str]()

    def finish() -> None:
        if text:
            found.append(Message(severity, place, "\n".join(text)))

    for line in output.split("\n"):
        match = _LINE.match(line)
        if match:
            finish()
            severity, place = match[3], Position(int(match[1]), int(match[2]))
            text = [line[match.end() :]]
        else:
            text.append(line)
    finish()
    return found


def moved(messages: Sequence[Message], lines: int) -> list[Message]:
    """Messages whose lines are counted from an earlier line of the program."""
    return [
        Message(message.severity, Position(message.pos.line + lines, message.pos.column), message.data)
        for message in messages
    ]
