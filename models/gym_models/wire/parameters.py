"""Which sampling parameters an engine has. Others are refused by name before the call is sent.

The parameters are those of `gym_runtime.messages.rollout_settings` that the Responses API lacks, and
``reasoning_effort``. For an unknown engine that speaks OpenAI's APIs, Chat Completions pass all of them on,
and the engine refuses those that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from gym_runtime.errors import ModelRefused
from gym_runtime.messages import BEYOND_RESPONSES
from msgspec import Raw

from gym_models.wire import pieces

EFFORT = "reasoning_effort"
ALL = frozenset({*BEYOND_RESPONSES, EFFORT})
OPENAI_CHAT = frozenset({"seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", EFFORT})
"""Source: OpenAI's API reference, "Create chat completion"."""
RESPONSES = frozenset({EFFORT})

_decode_reasoning = msgspec.json.Decoder(dict[str, Raw]).decode


def require(asked: Iterable[str], known: frozenset[str], engine: str) -> None:
    """
    Raises:
        ModelRefused: the request has a sampling parameter that the engine does not have; the message names
        both.
    """
    lacking = sorted(ALL.intersection(asked) - known)
    if lacking:
        names = ", ".join(f"'{name}'" for name in lacking)
        raise ModelRefused(
            f"{engine} has no {names}: leave it out, or use an engine that has it", stage="model"
        )


@lru_cache(maxsize=256)
def beyond_responses(params: bytes) -> tuple[str, ...]:
    """The sampling parameters in a call's ``metadata`` that the Responses API lacks.

    Raises:
        TaskError: the ``metadata`` is malformed.
    """
    fields = pieces.decode_fields(params)
    if pieces.is_null(fields.get("metadata", Raw())):
        return ()
    extra = pieces.take_side_channel(fields)
    return tuple(name for name in BEYOND_RESPONSES if name in extra)


def asked(params: Mapping[str, Raw]) -> list[str]:
    """The names of `ALL` in a row's ``responses_create_params``."""
    fields = {name: value for name, value in params.items() if not pieces.is_null(value)}
    found = [name for name in pieces.take_side_channel(fields) if name in ALL]
    if "reasoning" in fields and not pieces.is_null(
        _decode_reasoning(fields["reasoning"]).get("effort", Raw())
    ):
        found.append(EFFORT)
    return found
