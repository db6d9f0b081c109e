"""Whether a server's log-probabilities are those of the distribution that it samples from.

vLLM's default, ``--logprobs-mode raw_logprobs``, are those before the temperature. A trainer divides its
logits by the temperature, so its importance ratios would be wrong, and nothing else would say so. A server
does not tell its mode. So it is asked for one token at two temperatures: the most likely ones have the same
log-probabilities at both only if these are raw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from gym_faces.dialects import pieces
from gym_runtime.errors import UNREADABLE, ModelError
from gym_runtime.logs import logger

from gym_models.wire.http import Answer

TEMPERATURES = (1.0, 2.0)  # vLLM takes no higher one
TOP = 4
SAME = 0.25
"""Two passes may differ by less. Of three tokens, one changes by more at the other temperature: an unlikely
one, where the first is nearly certain."""


class _Params(msgspec.Struct):
    temperature: float | None = None


class _Request(msgspec.Struct):
    sampling_params: _Params = msgspec.field(default_factory=_Params)


class _Top(msgspec.Struct):
    logprob: float


class _Token(msgspec.Struct):
    top_logprobs: list[_Top]


class _Logprobs(msgspec.Struct):
    content: list[_Token]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


def another_temperature(generate_request: bytes) -> bool:
    """Whether a completion is sampled at a temperature at which the mode matters."""
    return _decode_request(generate_request).sampling_params.temperature not in (None, 0.0, 1.0)


async def warn_of_raw(model: str, url: str, post: Callable[[bytes], Awaitable[Answer]]) -> None:
    """Write a line to the log if a server's log-probabilities are those before the temperature.

    Args:
        post: asks its Chat Completions.
    """
    try:
        first, other = [await _most_likely(model, temperature, post) for temperature in TEMPERATURES]
    except (IndexError, ModelError, *UNREADABLE):
        return  # it does not say; what is wrong with it, calls will report
    changes = [abs(one - again) for one, again in zip(first, other, strict=False)]
    if changes and max(changes) < SAME:
        logger().warning(
            "log-probabilities are those before the temperature, and a trainer's would be of another "
            "distribution: start vLLM with --logprobs-mode processed_logprobs",
            url=url,
        )


async def _most_likely(
    model: str, temperature: float, post: Callable[[bytes], Awaitable[Answer]]
) -> list[float]:
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "Say a word."}],
        "max_tokens": 1,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": -1,
        "logprobs": True,
        "top_logprobs": TOP,
    }
    answer = await post(pieces.encode(asked))
    top = _decode_completion(answer.body).choices[0].logprobs.content[0].top_logprobs
    # The token that was sampled stands among them, and may be an unlikely one.
    return sorted((one.logprob for one in top), reverse=True)[: TOP - 1]
