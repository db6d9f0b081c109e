"""What agents that ask the model several things share: the task as a text, and an answer without thoughts."""

from __future__ import annotations

import sys

from gym_runtime import quoted
from gym_runtime.adapters import Rollout, Turn
from gym_runtime.messages import Message, decode_items

SHOWN_CHARS = 20_000
"""Of an answer that a later question quotes: what is longer is cut in its middle."""


def task_of(rollout: Rollout) -> str:
    """The messages of the row's input, those of the assistant aside, as one text."""
    said = [item for item in decode_items(rollout.input) if isinstance(item, Message)]
    return "\n\n".join(message.text for message in said if message.role != "assistant")


def said(turn: Turn) -> str:
    """What an answer says, after its thoughts."""
    return "\n\n".join(message.text for message in turn.messages).rpartition("</think>")[2].strip()


def shown(text: str) -> str:
    """A text in quotation marks, cut to `SHOWN_CHARS`."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[: SHOWN_CHARS // 2]}\n[…]\n{text[-SHOWN_CHARS // 2 :]}"
    return quoted(text)


def turns_left(rollout: Rollout) -> int:
    """Model calls that may still be made."""
    return sys.maxsize if rollout.max_turns is None else rollout.max_turns - rollout.turns


def stopped(rollout: Rollout, turns: list[Turn]) -> bool:
    """Whether the rollout is over after these answers: one is incomplete, or no turn is left."""
    for turn in turns:
        if turn.incomplete is not None:
            rollout.truncate(turn.incomplete)
    if turns_left(rollout) <= 0:
        rollout.truncate("max_turns")
    return rollout.truncated is not None
