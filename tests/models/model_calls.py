"""Calls as an agent makes them, and what comes back."""

from __future__ import annotations

import json
import time
from typing import Any

from gym_runtime.messages.calls import ModelAnswer, ModelCall, prefix_after
from gym_runtime.messages.responses import Response, decode_response
from gym_runtime.workers.adapter import CallContext
from msgspec import Raw
from msgspec.structs import replace
from time_limits import busy

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
USER = {"role": "user", "content": "What is the weather in San Francisco? Use the tool."}


def model_call(*items: dict[str, Any], return_tokens: bool = False, **params: Any) -> ModelCall:
    """A call with these input items (one user message by default) and parameters."""
    return ModelCall(
        params=Raw(json.dumps(params).encode()),
        input=[Raw(json.dumps(item).encode()) for item in items or (USER,)],
        return_tokens=return_tokens,
    )


def context(*, limit_s: float | None = None, rollout: str = "run.0.0", **headers: str) -> CallContext:
    """Whose call it is, which may take 15 s on a quiet machine.

    ``x_stub_fault="429"`` becomes that header.
    """
    return CallContext(
        rollout=rollout,
        attempt=1,
        deadline_s=time.monotonic() + (15 * busy() if limit_s is None else limit_s),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def decoded(answer: ModelAnswer) -> Response:
    """The response in an answer, checked."""
    return decode_response(bytes(answer.response))


def output(answer: ModelAnswer) -> list[dict[str, Any]]:
    """Its output items."""
    return json.loads(bytes(answer.response))["output"]


def continued(call: ModelCall, answer: ModelAnswer, *new: dict[str, Any]) -> ModelCall:
    """The next turn's call, as a model worker makes it."""
    items = [*call.input, *decoded(answer).output]
    more = [Raw(json.dumps(item).encode()) for item in new]
    return replace(call, input=items + more, prefix=prefix_after(answer.tokens, len(items)))
