"""The messages of vLLM's token endpoints: the fields that are read; the rest passes through as bytes.

``/v1/chat/completions/render``     a conversation → token ids, sampling parameters, grammar
``/inference/v1/generate``          those → token ids, log-probabilities, versions of the weights
``/v1/chat/completions/derender``   those → a completion, by the engine's own parsers
``/tokenize``                       a conversation → token ids
``/detokenize``                     token ids → text
``/v1/chat/completions``            either → a completion, with the token ids that the engine saw

The first three need ``--enable-scale-out``. Source: vLLM 0.32, ``entrypoints/scale_out``,
``entrypoints/serve/tokenize``, ``renderers/online_renderer.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from gym_faces.dialects import Logprobs, chat_answer, pieces
from gym_runtime.adapters import Tokens, WeightSpan
from gym_runtime.messages import pack_ids, pack_logprobs
from gym_runtime.workers import moved
from msgspec import Meta, Raw

RENDER = "/chat/completions/render"
DERENDER = "/chat/completions/derender"
GENERATE = "/inference/v1/generate"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
_OMITTED_MAX_TOKENS = 16
_RENDERED = (
    *("model", "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt"),
    *("continue_final_message", "add_special_tokens"),
)


Ids = list[Annotated[int, Meta(ge=0, lt=2**31)]]
"""Token ids. Others cannot be stored, and no trainer can use them."""


class Rendering(msgspec.Struct):
    """A conversation as the engine will see it; ``body`` is the whole answer."""

    token_ids: Ids
    features: Raw = Raw()
    body: bytes = b""


class Tokenized(msgspec.Struct):
    """An answer of ``TOKENIZE``."""

    tokens: Ids


class _Place(msgspec.Struct):
    offset: int
    length: int


class _Features(msgspec.Struct):
    mm_placeholders: dict[str, list[_Place]]


class Choice(msgspec.Struct):
    """One completion: why it ended, and what it consists of."""

    token_ids: Ids | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Logprobs | None = None
    weight_versions: list[WeightSpan] | None = None
    routed_experts: Raw = Raw()

    def __post_init__(self) -> None:
        ids, said = self.token_ids or [], (self.logprobs and self.logprobs.content) or []
        if said and len(said) != len(ids):
            raise ValueError(f"{len(ids)} tokens and {len(said)} log-probabilities")


class Generated(msgspec.Struct):
    """What the engine saw and produced.

    Attributes:
        kv_transfer_params: where another engine has the prompt's cache, if a connector shares it.
    """

    request_id: str
    choices: Annotated[list[Choice], Meta(min_length=1)]
    prompt_token_ids: Ids | None = None
    kv_transfer_params: Raw = Raw()


class Text(msgspec.Struct):
    """An answer of ``/detokenize``."""

    prompt: str


def tokenize_request(chat_request: bytes, *, prompted: bool) -> bytes:
    """The body of ``TOKENIZE`` that renders what a chat request would.

    ``prompted`` false leaves out the prompt to answer. Earlier thinking has to be in ``reasoning``: a chat
    request may use two names for it, ``TOKENIZE`` only this one (vLLM 0.32).
    """
    chat = pieces.decode_fields(chat_request)
    fields = {name: chat[name] for name in _RENDERED if name in chat}
    if not prompted:
        fields["add_generation_prompt"] = Raw(b"false")
    kwargs = (
        {}
        if pieces.is_null(chat.get("chat_template_kwargs", Raw()))
        else pieces.decode_fields(chat["chat_template_kwargs"])
    )
    effort = chat.get("reasoning_effort", Raw())
    if not pieces.is_null(effort):  # one field in a chat request becomes two arguments there
        thinks = Raw(b"false" if bytes(effort) == b'"none"' else b"true")
        fields["chat_template_kwargs"] = Raw(
            pieces.encode({"enable_thinking": thinks, **kwargs, "reasoning_effort": effort})
        )
    return pieces.encode(fields)


def chat_request_from(chat_request: bytes, prompt: list[int]) -> bytes:
    """The chat request whose prompt is these tokens, whatever its messages would be rendered to.

    The field's name comes from engines that hand a rendered prompt to each other (vLLM PR 48145); nothing
    is transferred here. An engine without this field renders the messages.
    """
    fields = pieces.decode_fields(chat_request)
    given = fields.get("kv_transfer_params", Raw())
    params = {} if pieces.is_null(given) else pieces.decode_fields(given)
    return pieces.encode({**fields, "kv_transfer_params": {**params, "prompt_token_ids": prompt}})


def with_prefix(request: bytes, prefix: Sequence[int], *, ids_named: bool = False) -> bytes:
    """A request for a chat completion, or its rendering, whose prompt must start with these tokens.

    Source: NeMo RL's and verl's (NeMo Gym recipe) servers, which know this field of both requests.

    Args:
        ids_named: ask for ``token_id:N`` in place of each token's text, beside its log-probability.
    """
    fields: dict[str, Any] = {"return_tokens_as_token_ids": True} if ids_named else {}
    if prefix:
        fields["required_prefix_token_ids"] = prefix
    return pieces.encode({**pieces.decode_fields(request), **fields})


def generate_request(rendering: Rendering, prompt: list[int], features: Raw | None) -> bytes:
    """The body of ``GENERATE``: the rendering's, for this prompt."""
    fields = {
        name: value
        for name, value in pieces.decode_fields(rendering.body).items()
        if not pieces.is_null(value)
    }
    fields.pop("stream", None)
    # A rendering leaves out what equals the default of SamplingParams, and without a limit the engine goes
    # on to the end of its context (vLLM 0.32).
    sampling = pieces.decode_fields(fields["sampling_params"])
    fields["sampling_params"] = Raw(pieces.encode({"max_tokens": _OMITTED_MAX_TOKENS, **sampling}))
    if features is not None:
        fields["features"] = features
    return pieces.encode({**fields, "token_ids": prompt, "return_token_ids": True})


def moved_features(
    rendering: Rendering, prompt: Sequence[int], so_far: Sequence[int], history: Sequence[int]
) -> Raw | None:
    """The images' placeholders where they are in the prompt; None if that is unknown."""
    fields = pieces.decode_fields(rendering.features)
    shift = len(prompt) - len(rendering.token_ids)
    places = msgspec.json.decode(rendering.features, type=_Features).mm_placeholders
    for place in (one for several in places.values() for one in several):
        offset = moved(place.offset, place.length, so_far, history, shift)
        if offset is None:
            return None
        place.offset = offset
    return Raw(pieces.encode({**fields, "mm_placeholders": places}))


def answered(choice: Choice) -> list[int]:
    """The completion without the token that only ends it, which the parsers would take for text."""
    ids = choice.token_ids or []
    ended = choice.finish_reason == "stop" and not isinstance(choice.stop_reason, str)
    return ids[:-1] if ended else ids


def derender_request(generated: Generated, head: bytes) -> bytes:
    """The body of ``DERENDER``; ``head`` is the chat request, whose messages the parsers do not need."""
    choice = generated.choices[0]
    prompt = generated.prompt_token_ids or []
    response = {
        "request_id": generated.request_id,
        "prompt_token_ids": prompt,
        "choices": [{"index": 0, "finish_reason": choice.finish_reason, "token_ids": answered(choice)}],
    }
    return pieces.encode(
        {"generate_response": response, "prompt_tokens": len(prompt), "chat_request": Raw(head)}
    )


def tokens(generated: Generated) -> Tokens:
    """What the engine saw and produced, in the runtime's form."""
    choice = generated.choices[0]
    content = (choice.logprobs and choice.logprobs.content) or []
    return Tokens(
        prompt_ids=pack_ids(generated.prompt_token_ids or []),
        generation_ids=pack_ids(choice.token_ids or []),
        log_probs=pack_logprobs([entry.logprob for entry in content]),
        weights=choice.weight_versions or [],
    )


# -- the completion that the engine's parsers make of tokens, and what they leave out ---------------------


def amend(completion: chat_answer.Completion[chat_answer.Choice], choice: Choice) -> None:
    """Count the token that ended the completion, and take off the stop string at which it ended."""
    if completion.usage is not None:
        completion.usage.completion_tokens = len(choice.token_ids or [])
    message = completion.choices[0].message
    if message and isinstance(choice.stop_reason, str) and bytes(message.content).startswith(b'"'):
        text, found, _ = msgspec.json.decode(message.content, type=str).rpartition(choice.stop_reason)
        if found:
            message.content = Raw(pieces.encode(text))


def empty_completion(generated: Generated, model: str) -> bytes:
    """The completion of a model that generated no text."""
    choice, prompt = generated.choices[0], len(generated.prompt_token_ids or [])
    said = len(choice.token_ids or [])
    message: dict[str, Any] = {"message": {"content": ""}, "finish_reason": choice.finish_reason}
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    return pieces.encode({"model": model, "choices": [message], "usage": usage})
