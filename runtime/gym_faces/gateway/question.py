"""A call for a model as the gateway hands it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from gym_runtime.messages.calls import ModelAnswer, ModelCall


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A call for a model.

    Attributes:
        rollout: its id; empty if the client named none.
        model: the name that the client used.
        key: unique, also the id of the captured call.
    """

    rollout: str
    model: str
    call: ModelCall
    key: str
    deadline_s: float


Ask = Callable[[Question], Awaitable[ModelAnswer]]
