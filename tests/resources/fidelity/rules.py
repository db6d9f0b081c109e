"""How a rule of NeMo Gym's is written down as a test: in a sentence, with replies and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_runtime.environment.roles import Scripted

REFUSED = "refused"
"""Instead of a reward: the row is refused, before a model is called."""
Item = Mapping[str, Any] | str
Worth = float | str | Mapping[str, Any]
"""A reward, fields of the verdict, or `REFUSED`."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of one environment.

    Attributes:
        says: the rule in a sentence.
        task: the fields of a row that it applies to.
        cases: replies (a text, or items) and what they are worth.
        answers: what a role answers, in order, for each reply.
    """

    environment: str
    says: str
    task: Mapping[str, Any]
    cases: Sequence[tuple[Item | Sequence[Item], Worth]]
    answers: Mapping[str, Sequence[Scripted]] = field(default_factory=dict[str, Sequence[Scripted]])


def said(*parts: str, role: str = "assistant") -> dict[str, Any]:
    """A message with these parts."""
    content = [{"type": "output_text", "text": part, "annotations": []} for part in parts]
    return {"type": "message", "role": role, "content": content}


def refusal(text: str = "I can't.") -> dict[str, Any]:
    """A message that the engine marks as a refusal."""
    return {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}]}


def thought(text: str) -> dict[str, Any]:
    """An item of reasoning."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def made(name: str, arguments: object, call_id: str = "c") -> dict[str, Any]:
    """A function call; arguments that are a text stand as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def printed(output: object, call_id: str = "c") -> dict[str, Any]:
    """What a tool answered; an output that is a text stands as it is."""
    text = output if isinstance(output, str) else json.dumps(output)
    return {"type": "function_call_output", "call_id": call_id, "output": text}
