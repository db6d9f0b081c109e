"""Batches of terminal commands in the forms of Terminal-Bench's agents, and how alike two of them are.

Source: the forms are those of github.com/laude-institute/terminal-bench (Apache-2.0).
"""

from __future__ import annotations

import msgspec

from gym_resources.extract.similarity import ratio

_NUMBERS = {b"-", *(b"%d" % digit for digit in range(10))}


class Terminus1Command(msgspec.Struct, forbid_unknown_fields=True):
    keystrokes: str
    is_blocking: bool
    timeout_sec: msgspec.Raw

    def __post_init__(self) -> None:
        check_number(self.timeout_sec)


class Terminus1(msgspec.Struct, forbid_unknown_fields=True):
    state_analysis: str
    explanation: str
    commands: list[Terminus1Command]
    is_task_complete: bool


class Terminus2Command(msgspec.Struct, forbid_unknown_fields=True):
    keystrokes: str
    duration: msgspec.Raw = msgspec.Raw(b"1")

    def __post_init__(self) -> None:
        check_number(self.duration)


class Terminus2(msgspec.Struct, forbid_unknown_fields=True):
    analysis: str
    plan: str
    commands: list[Terminus2Command]
    is_task_complete: bool = msgspec.field(default=False, name="task_complete")


def check_number(value: msgspec.Raw) -> None:
    """Accepts any JSON number of any size; its value is not used.

    Raises:
        ValueError: the value is not a number.
    """
    if bytes(value).lstrip()[:1] not in _NUMBERS:
        raise ValueError("expected a number")


FORMS: dict[str, type[Terminus1 | Terminus2]] = {"terminus_1": Terminus1, "terminus_2": Terminus2}


def keystrokes(batch: Terminus1 | Terminus2) -> str:
    return "".join(command.keystrokes for command in batch.commands)


def similarity(wanted: Terminus1 | Terminus2, given: Terminus1 | Terminus2, threshold: float) -> float | None:
    """How alike the keystrokes of two batches are, 0 to 1; None as of `ratio`."""
    if not wanted.commands or not given.commands:
        return float(not wanted.commands and not given.commands)
    return ratio(keystrokes(wanted), keystrokes(given), threshold)
