"""``/v1/completions``, for base models: a text goes on. An engine's end only; no client speaks it here.

The prompt is a row's input as it is written: one user's message, behind one of the system if there is one,
with an empty line between; no template is laid on. The answer is a message with the text. Log-probabilities
are in its text part, as in the Responses API: ``top_logprobs`` asks for so many alternatives of each token;
``metadata.extra_body`` may hold ``echo``, so that the prompt and its tokens come first (the first of them has
``logprob`` null, as nothing is before it), ``max_tokens`` 0 to sample nothing, ``stop``, ``seed`` and
whatever the engine knows.
Source: OpenAI's API reference, "Create completion".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from gym_runtime.adapters import ModelCall
from gym_runtime.errors import UNREADABLE, ModelRefused, TaskError
from gym_runtime.messages import Message, decode_items
from msgspec import Raw

from gym_faces.dialects import chat_answer, responses_api, side_channel
from gym_faces.dialects.dialect import ForeignAnswer
from gym_faces.dialects.pieces import decode_fields, encode, present

PATH = "/completions"
_SAME = ("temperature", "top_p", "user", "seed")
_ONE_PROMPT = "a completion goes on from one user's message, behind one of the system at most"
_LOGPROBS = "message.output_text.logprobs"


class _Params(msgspec.Struct):
    tools: list[Raw] = []
    instructions: str | None = None
    include: list[str] = []
    top_logprobs: int | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    created: Raw = Raw(b"null")
    model: Raw = Raw(b"null")
    usage: Raw = Raw(b"null")


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


def write_request(call: ModelCall, model: str, extra_body: bytes) -> bytes:
    """The body of ``POST /completions``; fields take precedence as in `responses_api.write_request`.

    Raises:
        TaskError: the row holds what a completion cannot carry: tools, several turns, images …
        ModelRefused: token ids are wanted.
    """
    if call.return_tokens:
        raise ModelRefused(
            "/v1/completions is asked for texts and log-probabilities only; for exact tokens use vllm/NAME "
            "with chat",
            stage="model",
        )
    try:
        head, instructions = _head(bytes(call.params), model, extra_body)
        return head + encode(_prompt(call, instructions)) + b"}"
    except UNREADABLE as error:
        raise TaskError(f"the conversation is not a Responses API input: {error}", stage="model") from error


@lru_cache(maxsize=256)
def _head(params: bytes, model: str, extra_body: bytes) -> tuple[bytes, str | None]:
    """Everything but the prompt, which is the last field; and the instructions."""
    fields = present(params)
    extra = side_channel.take(fields)
    given = _decode_params(encode(fields))
    if given.tools:
        raise TaskError("/v1/completions knows no tools; use an engine with chat", stage="model")
    body: dict[str, Any] = {"model": model or fields.get("model"), **decode_fields(extra_body)}
    body.update((name, fields[name]) for name in _SAME if name in fields)
    if "max_output_tokens" in fields:
        body["max_tokens"] = fields["max_output_tokens"]
    if given.top_logprobs is not None or _LOGPROBS in given.include:
        body["logprobs"] = given.top_logprobs or 0
    return encode({**body, **extra})[:-1] + b',"prompt":', given.instructions


def _prompt(call: ModelCall, instructions: str | None) -> str:
    texts = [instructions] if instructions else []
    roles = ["system"] * len(texts)
    for item in decode_items(call.input):
        if not isinstance(item, Message) or any(part.text is None for part in item.parts):
            raise TaskError(f"{_ONE_PROMPT}, of text alone", stage="model")
        roles.append("system" if item.role == "developer" else item.role)
        texts.append(item.text)
    if roles not in (["user"], ["system", "user"]):
        raise TaskError(f"{_ONE_PROMPT}, not from {', '.join(roles[:9]) or 'nothing'}", stage="model")
    return "\n\n".join(texts)


def read_answer(body: bytes, params: bytes) -> Raw:
    """The response that an engine's completion becomes.

    Raises:
        ForeignAnswer: the body holds no completion.
        ModelUnavailable: the engine broke the generation off.
    """
    try:
        found = _decode_completion(body)
        choice = found.choices[0]
    except (*UNREADABLE, IndexError) as error:
        raise ForeignAnswer(f"no completion: {error}") from error
    message = {"role": "assistant", "content": choice.text}
    as_chat = {
        "choices": [
            {"message": message, "finish_reason": "stop" if _silent(params) else choice.finish_reason}
        ],
        "created": found.created,
        "model": found.model,
        "usage": found.usage,
    }
    completion = chat_answer.read_answer(encode(as_chat))
    return chat_answer.response(completion, responses_api.echo(params), encode(_shown(choice.logprobs)))


@lru_cache(maxsize=256)
def _silent(params: bytes) -> bool:
    """Whether the engine was to write nothing: then an answer that ends at its limit is whole."""
    return side_channel.take(present(params)).get("max_tokens") == 0


def _shown(logprobs: _Logprobs | None) -> list[dict[str, Any]] | None:
    """An entry for each token, as the Responses API has them."""
    if logprobs is None or not logprobs.tokens:
        return None
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    return [
        {**_entry(token, value), "top_logprobs": [_entry(one, its) for one, its in (top or {}).items()]}
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=False)
    ]


def _entry(token: str, value: float | None) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode(errors="replace"))}
