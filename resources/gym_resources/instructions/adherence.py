"""Which of a request's instructions a text follows: as it stands, or leniently.

Lenient is IFEval's second way to count: a text follows an instruction if it does so without its first line,
its last line, both, or as it is, each also without asterisks. So an opening such as "Sure, here it is:", a
closing remark, and Markdown do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anyio import to_thread

from gym_resources.extract.patterns import bounded
from gym_resources.instructions.instruction_ids import bind, expressions

LONG = 4_000
TIMEOUT_S = 60.0
Instruction = tuple[str, dict[str, Any] | None]


async def followed_by(
    text: str, instructions: Sequence[Instruction], *, leniently: bool = False
) -> list[bool]:
    """Which instructions a text follows, checked beside the event loop: in a process if it may take long.

    Raises:
        TaskError: it took longer than `TIMEOUT_S` seconds.
    """
    wanted = list(instructions)
    follow = follow_leniently if leniently else follow_strictly
    searched = [found for check in map(_bound, wanted) if check for found in expressions(check)]
    if searched or len(text) > LONG:
        return await bounded(follow, text, wanted, expressions=searched, long=LONG, timeout_s=TIMEOUT_S)
    return await to_thread.run_sync(follow, text, wanted)  # it takes up to a second of CPU time


def follow_strictly(text: str, instructions: list[Instruction]) -> list[bool]:
    """Which instructions a text follows as it stands."""
    return [check is not None and check(text) for check in map(_bound, instructions)]


def follow_leniently(text: str, instructions: list[Instruction]) -> list[bool]:
    """Which instructions any of the text's variants follows that are not empty."""
    texts = [variant for variant in variants(text) if variant.strip()]
    return [check is not None and any(map(check, texts)) for check in map(_bound, instructions)]


def variants(text: str) -> list[str]:
    """A text, without its first line, without its last, without both; then each without asterisks.

    >>> variants("Sure:\\n*Yes.*")[:4]
    ['Sure:\\n*Yes.*', '*Yes.*', 'Sure:', '']
    """
    lines = text.split("\n")
    cut: list[Callable[[list[str]], list[str]]] = [
        lambda every: every[1:],
        lambda every: every[:-1],
        lambda every: every[1:-1],
    ]
    plain = [text, *("\n".join(part(lines)).strip() for part in cut)]
    return list(dict.fromkeys([*plain, *(variant.replace("*", "") for variant in plain)]))


def _bound(instruction: Instruction) -> partial[bool] | None:
    """The check of an instruction; None if it is unknown, or its arguments do not fit."""
    try:
        return bind(*instruction)
    except ValueError:
        return None
