"""What the worker and a process that is kept for a rollout tell each other: frames of JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True, tag="question"):
    """A question to the policy or to a model in a role: the whole conversation, as items."""

    role: str = ""
    items: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """The verdict.

    Attributes:
        problem: why there is no answer.
        limit: which limit of the guest's ended the rollout.
    """

    reward: float = 0.0
    components: dict[str, float] = {}
    fields: dict[str, Any] = {}
    problem: str = ""
    limit: str = ""


Said = Question | End
decode_said = msgspec.json.Decoder[Said](Said).decode
encode = msgspec.json.Encoder().encode
