"""The OpenAI Responses API: the items of a conversation, and the two ends of a model call.

`decode_item` gives a typed view of one item and keeps the bytes it came from; `encode_item` gives those
bytes back. So a worker passes on fields that this module does not know, and does not re-encode an item that
it only passes on. `CreateParams` of a row and the `Response` that came back keep every field that result rows
show, nulls included, because programs that read such rows index them. Source: OpenAI Responses API reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, cast

import msgspec
from msgspec import Raw

from gym_runtime.messages.images import Content


class Item(msgspec.Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """Any item. ``raw`` is the JSON it was decoded from, or None for one made here."""

    @property
    def raw(self) -> Raw | None:
        return cast("Raw | None", self.__dict__.get("raw"))


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One content part: ``input_text``, ``output_text``, ``input_image``, ``refusal`` …"""

    type: str
    text: str | None = None
    image_url: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None


class Message(Item, tag_field="type", tag="message", frozen=True, kw_only=True):
    """Text (or other parts) by ``user``, ``assistant``, ``system`` or ``developer``."""

    role: str
    content: str | list[Part] | None
    id: str | None = None
    status: str | None = None

    @property
    def parts(self) -> list[Part]:
        """The content parts; empty if the content is a plain string."""
        return self.content if isinstance(self.content, list) else []

    @property
    def text(self) -> str:
        """All text parts, concatenated."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.parts if part.text is not None)


class Reasoning(Item, tag_field="type", tag="reasoning", frozen=True, kw_only=True):
    """The model's thinking, as summary or content parts."""

    id: str | None = None
    summary: list[Part] = []
    content: list[Part] | None = None
    encrypted_content: str | None = None
    status: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in [*(self.content or ()), *self.summary])


class FunctionCall(Item, tag_field="type", tag="function_call", frozen=True, kw_only=True):
    """A tool call. ``arguments`` is JSON text as the model wrote it, so it need not be valid JSON."""

    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class FunctionCallOutput(Item, tag_field="type", tag="function_call_output", frozen=True, kw_only=True):
    """A tool's answer."""

    call_id: str
    output: str | list[Part]
    id: str | None = None
    status: str | None = None


class OtherItem(Item, frozen=True, kw_only=True):
    """An item of a type that this module does not know (hosted tools and the like)."""

    type: str


class _Head(msgspec.Struct, frozen=True):
    type: str = "message"


_known = msgspec.json.Decoder(Message | Reasoning | FunctionCall | FunctionCallOutput)
_message = msgspec.json.Decoder(Message)
_other = msgspec.json.Decoder(OtherItem)
_head = msgspec.json.Decoder(_Head)
_KNOWN_TYPES = {"message", "reasoning", "function_call", "function_call_output"}
_encoder = msgspec.json.Encoder()


def decode_item(raw: Raw | bytes) -> Item:
    """A typed view of one item; a message may leave out its ``type``.

    Raises:
        msgspec.ValidationError: a known item lacks a field or has one of a wrong type.
    """
    # One reading: a megabyte of escapes takes 8 ms. A message's role comes first where it has no type.
    known = _message if bytes(memoryview(raw)[:7]) == b'{"role"' else _known
    try:
        item: Item = known.decode(raw)
    except msgspec.ValidationError:
        item = _decode_rare(raw)
    vars(item)["raw"] = raw if isinstance(raw, Raw) else Raw(raw)
    return item


def _decode_rare(raw: Raw | bytes) -> Item:
    """An item without a type, of an unknown type, or with a fault."""
    kind = _head.decode(raw).type
    if kind not in _KNOWN_TYPES:
        return _other.decode(raw)
    return _message.decode(raw) if kind == "message" else _known.decode(raw)


def decode_items(raws: Iterable[Raw | bytes]) -> list[Item]:
    """`decode_item` on each, in order."""
    return [decode_item(raw) for raw in raws]


def encode_item(item: Item) -> Raw:
    """The bytes from which an item was decoded, or its JSON if it was created here."""
    return item.raw or Raw(_encoder.encode(item))


def user_message(text: str) -> Raw:
    """An easy input message by the user."""
    return Raw(_encoder.encode({"role": "user", "content": text}))


def tool_output(call_id: str, output: Content) -> Raw:
    """The ``function_call_output`` item that answers a call."""
    return Raw(_encoder.encode({"type": "function_call_output", "call_id": call_id, "output": output}))


NULL = Raw(b"null")
"""The default of optional raw fields: msgspec does not decode ``Raw | None``."""
_EMPTY_LIST = Raw(b"[]")
_AUTO = Raw(b'"auto"')


class CreateParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row's ``responses_create_params``: the input and how to sample.

    Source: OpenAI Responses API, "Create a model response", the non-streaming fields.
    """

    background: bool | None = None
    include: Raw = NULL
    input: Raw = _EMPTY_LIST
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: Raw = NULL
    reasoning: Raw = NULL
    service_tier: str | None = None
    store: bool | None = None
    temperature: float | None = None
    text: Raw = NULL
    tool_choice: Raw = _AUTO
    tools: list[Raw] = []
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None
    stream: bool | None = None

    def input_items(self) -> list[Raw]:
        """The input as a list of raw items; a string is one user message."""
        if bytes(memoryview(self.input)[:1]) == b'"':
            return [user_message(msgspec.json.decode(self.input, type=str))]
        # Parts of the row's own bytes: a copy would be held for as long as the rollout.
        return list(_raw_list.decode(self.input))


MOST_TOKENS = 2**53
TokenCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
"""Another number is no count: sums would be wrong, and readers of result files refuse longer ones."""


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: TokenCount = 0


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: TokenCount = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call, or of a rollout's calls together."""

    input_tokens: TokenCount = 0
    input_tokens_details: InputTokensDetails | None = InputTokensDetails()
    output_tokens: TokenCount = 0
    output_tokens_details: OutputTokensDetails | None = OutputTokensDetails()
    total_tokens: TokenCount = 0

    def __add__(self, other: Usage) -> Usage:
        cached = [d.cached_tokens for d in (self.input_tokens_details, other.input_tokens_details) if d]
        thought = [d.reasoning_tokens for d in (self.output_tokens_details, other.output_tokens_details) if d]
        return Usage(
            input_tokens=min(MOST_TOKENS, self.input_tokens + other.input_tokens),
            input_tokens_details=InputTokensDetails(cached_tokens=min(MOST_TOKENS, sum(cached))),
            output_tokens=min(MOST_TOKENS, self.output_tokens + other.output_tokens),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=min(MOST_TOKENS, sum(thought))),
            total_tokens=min(MOST_TOKENS, self.total_tokens + other.total_tokens),
        )


UNFINISHED = ("failed", "cancelled", "in_progress", "queued")
"""The statuses of a `Response` that holds no answer, or not yet all of it."""


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is incomplete: ``max_output_tokens`` (or the context limit) or ``content_filter``."""

    reason: str | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's answer, in the fields that result rows show; ``output`` holds raw items."""

    id: str = ""
    created_at: float = 0.0
    error: Raw = NULL
    incomplete_details: IncompleteDetails | None = None
    instructions: Raw = NULL
    metadata: Raw = NULL
    model: str = ""
    object: str = "response"
    output: list[Raw] = []
    parallel_tool_calls: bool = True
    temperature: float | None = None
    tool_choice: Raw = _AUTO
    tools: list[Raw] = []
    top_p: float | None = None
    background: bool | None = None
    conversation: Raw = NULL
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: Raw = NULL
    prompt_cache_key: str | None = None
    reasoning: Raw = NULL
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: str | None = "completed"
    store: bool | None = None
    text: Raw = NULL
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: Usage | None = None
    user: str | None = None


_raw_list = msgspec.json.Decoder(list[Raw])
decode_params = msgspec.json.Decoder(CreateParams).decode
decode_response = msgspec.json.Decoder(Response).decode
