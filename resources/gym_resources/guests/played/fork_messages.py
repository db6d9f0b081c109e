"""What the worker and the fork that plays a guest tell each other."""

from __future__ import annotations

from typing import Any

import msgspec

POLICY = "policy"


class Given(msgspec.Struct, frozen=True):
    """What a model in a role, or the policy, has answered: a response as JSON."""

    role: str
    response: bytes


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the policy or to a model in a role.

    Attributes:
        items: for the policy what is new since its last answer, for a role the whole conversation.
        tools: the function tools that it may call.
        sampling: further fields of ``responses_create_params``; for roles only.
    """

    role: str = POLICY
    items: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    sampling: dict[str, Any] = {}


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rollout could be played.

    Attributes:
        digests: of all questions so far, in their order.
        asked: the question that has no answer yet; None if the rollout has ended.
        reward, components, fields: the guest's verdict on a rollout that has ended.
    """

    digests: list[str]
    asked: Asked | None = None
    reward: float = 0.0
    components: dict[str, float] = {}
    fields: dict[str, Any] = {}
